-- SPDX-License-Identifier: PostgreSQL
-- Templates, paths of URLs, references and predicates.  Texts that come from the server's own parser
-- differ between its versions, so of a malformed path only the kind is printed.
\pset null '(null)'
\pset format unaligned
SET TimeZone = 'UTC';

CREATE TEMP TABLE root AS SELECT '{
  "input": {"sku": "A-1", "n": 1.50, "yes": true, "none": null, "note": "50% of {{input.sku}}",
            "obj": {"b": [1, {"c": "x"}], "a": null}, "odd key": "o", "q\"t": "quoted", "ü": "ungewöhnlich",
            "empty": "", "braces": "{{input.sku}}", "deep": [[1, 2], [3, [4]]],
            "lines": [{"id": 7, "qty": 1}, {"id": 8, "qty": 5}, {"id": 9, "qty": 6}],
            "one": [{"id": 7}], "nil": [], "at": "2026-03-01"},
  "steps": {"pick": {"output": {"n": 2, "qty": 5}}},
  "index": 1, "key": "k"
}'::jsonb AS root;

-- template, result or problem
PREPARE render(jsonb) AS
    SELECT coalesce(r.result, r.problem) AS answer, r.result IS NULL AS refused
    FROM root, _sas.render($1, root.root) r;
PREPARE render_path(text) AS
    SELECT r.result, r.problem FROM root, _sas.render_path($1, root.root) r;

-- a string that is exactly one reference keeps the type of the value
EXECUTE render('{"s": "{{input.sku}}", "n": "{{ input.n }}", "b": "{{input.yes}}", "z": "{{input.none}}", "o": "{{input.obj}}", "a": "{{input.deep}}"}');
-- the template may itself be one reference, of any kind
EXECUTE render('"{{input.obj}}"');
EXECUTE render('"{{input.n}}"');
EXECUTE render('"{{input.none}}"');
-- any other string becomes text: null is nothing, containers are JSON
EXECUTE render('["<{{input.sku}}>", "{{input.n}} {{input.yes}}", "[{{input.none}}]", " {{input.sku}}", "o={{input.obj}}", "{{index}}{{key}}", "{{input.deep[1]}}!"]');
-- what is not a string, and keys, stay as they are
EXECUTE render('{"{{input.sku}}": 1, "t": [true, null, 2.50, {}, [], "", "{", "}}", "{ {input.sku}}"]}');
-- characters outside ASCII work in keys, values and text
EXECUTE render('{"schlüssel": "größe {{input.ü}} ✓ {{ input.\"ü\" }}", "😀": "{{input.ü}}"}');
-- quoted members, also with braces inside
EXECUTE render('["{{input.\"odd key\"}}", "{{input.\"q\\\"t\"}}", "{{input.\"}}\"?}}"]');
-- nested arrays and objects in the template
EXECUTE render('[[["{{input.sku}}", ["{{index}}"]], {"a": [{"b": ["x{{index}}"]}]}]]');
-- \{{ is a literal, and needs no end
EXECUTE render('["\\{{input.sku}}", "a\\{{b {{input.sku}}", "\\{{", "\\\\{{x", "a\\b"]');
-- values are never expanded again
EXECUTE render('["{{input.braces}}", "<{{input.braces}}>", "{{input.note}}"]');
-- without references the template comes back as it is
EXECUTE render('{"a": [1, "x"]}');
EXECUTE render('5');

-- nothing found is refused, with place, path and what stood in the way
EXECUTE render('{"a": {"b/c": ["x", "{{input.nope}}"]}}');
EXECUTE render('{"a~": "see {{input.sku.x}}"}');
EXECUTE render('"{{input.deep[7]}}"');
EXECUTE render('["{{nope}}"]');
EXECUTE render('["{{input.obj.b[1].d}}"]');
-- a trailing ? makes it null, or nothing within text
EXECUTE render('["{{input.nope?}}", "{{ input.nope.more ? }}", "<{{input.nope?}}>", "{{input.sku?}}", "{{input.deep[7]?}}"]');
-- subscripts: from 0, last, and computed
EXECUTE render('["{{input.deep[0]}}", "{{input.deep[last][1][0]}}", "{{input.lines[$.index].id}}", "{{input.lines[last - 1].id}}"]');
-- [*], a filter, .* and ranges give an array, also of one or of none
EXECUTE render('{"star": "{{input.lines[*].id}}", "filter": "{{input.lines[*] ? (@.qty > 4)}}", "tight": "{{input.lines?(@.qty>5).id}}", "none": "{{input.lines[*] ? (@.qty > 9)}}", "empty": "{{input.nil[*]}}", "range": "{{input.lines[0 to 1].id}}", "list": "{{input.lines[0, 2].id}}", "any": "{{steps.pick.output.*}}"}');
EXECUTE render('"{{input.one[*].id}}"');
-- a filter may look at the root
EXECUTE render('"{{input.lines[*] ? (@.qty == $.steps.pick.output.qty).id}}"');
-- in text the array is JSON
EXECUTE render('"ids {{input.lines[*].id}}"');
-- what the [*] stands on must be there
EXECUTE render('"{{input.lnes[*].id}}"');
EXECUTE render('"{{input.lnes[*].id?}}"');
-- a member of an array reaches into its elements: one is a value, several are refused
EXECUTE render('"{{input.one.id}}"');
EXECUTE render('"{{input.lines.id}}"');
-- methods and arithmetic of SQL/JSON paths work
EXECUTE render('["{{input.lines.size()}}", "{{input.n.ceiling()}}", "{{input.n * 2}}", "{{input.sku.type()}}"]');
-- an error inside a path is a problem, never raised
EXECUTE render('"{{input.sku.double()}}"');
EXECUTE render('"{{input.lines[*] + 1}}"');
-- dates compare, with a time zone too
EXECUTE render('"{{input ? (@.at.datetime() < \"2026-03-01T01:00:00+00:00\".datetime()).sku}}"');

-- malformed references
SELECT t, r.result, r.problem - 'hint' AS problem
FROM (VALUES ('{{'), ('a {{input.sku'), ('{{input.sku}'), ('{{}}'), ('{{  }}'), ('{{?}}'), ('{{input.}}'), ('{{.input}}'),
             ('{{input..sku}}'), ('{{$.input.sku}}'), ('{{input.sku == }}'), ('{{{input.sku}}}'), ('{{input.lines[$x]}}'),
             ('{{input.sku}} {{'), ('{{"}}'), ('{{input.lines[*] ? (@.id like_regex "(")}}'), ('{{1}}'), ('{{@}}')) v(t),
     root, _sas.render(to_jsonb(v.t), root.root) r;

-- one bad row does not spoil the others
SELECT n, r.result, r.problem ->> 'what' AS what
FROM (VALUES (1, '{"input": {"a": 1}}'::jsonb), (2, '{}'), (3, '{"input": [{"a": 3}]}'), (4, '[]'), (5, '7'), (6, 'null')) v(n, root),
     _sas.render('{"a": "{{input.a}}"}', v.root) r ORDER BY n;
-- a null argument gives null
SELECT r.* FROM _sas.render(NULL, '{}') r;

-- size and depth of a result are bounded
SELECT r.result IS NULL AS refused, r.problem ->> 'what' AS what
FROM (SELECT jsonb_agg('{{input}}'::text) AS t FROM generate_series(1, 70)) t,
     _sas.render(t.t, jsonb_build_object('input', repeat('x', 1000000))) r;
SELECT r.result IS NULL AS refused, r.problem ->> 'what' AS what
FROM _sas.render('["{{input}}"]', jsonb_build_object('input', (repeat('[', 1000) || repeat(']', 1000))::jsonb)) r;
SELECT r.result IS NULL AS refused, length(r.result::text)
FROM _sas.render('["{{input}}"]', jsonb_build_object('input', (repeat('[', 999) || repeat(']', 999))::jsonb)) r;
SELECT r.problem ->> 'what' AS what
FROM _sas.render((repeat('[', 1001) || '"{{input}}"' || repeat(']', 1001))::jsonb, '{"input": 1}') r;
SELECT r.problem ->> 'what' AS what, length(r.problem ->> 'pointer')
FROM _sas.render((repeat('[', 900) || '"{{nope}}"' || repeat(']', 900))::jsonb, '{"input": 1}') r;
-- a template of a megabyte, and more paths than are kept
SELECT length(r.result::text) > 1000000 AS large, r.result -> 39999 AS last, r.problem
FROM (SELECT jsonb_agg('item {{input.sku}} and some text ' || i ORDER BY i) AS t FROM generate_series(1, 40000) i) t,
     root, _sas.render(t.t, root.root) r;
SELECT jsonb_array_length(r.result) AS n, r.result -> 2499 AS last, r.problem
FROM (SELECT jsonb_agg('{{input.k' || i || '}}' ORDER BY i) AS t, jsonb_object_agg('k' || i, i) AS o FROM generate_series(1, 2500) i) t,
     _sas.render(t.t, jsonb_build_object('input', t.o)) r;

-- in the path of a URL a reference is one percent-encoded segment
EXECUTE render_path('/items/{{input.sku}}/{{input.n}}/{{input.yes}}');
EXECUTE render_path('/notes/{{input.note}}');
EXECUTE render_path('/u/{{input.ü}}?k={{key}}');
SELECT r.result FROM _sas.render_path('/x/{{v}}', jsonb_build_object('v', E'a/b?c#d&e=f+g h%\\\n~-._!*''();:@[]€')) r;
EXECUTE render_path('');
EXECUTE render_path('/plain/%20path?x=1');
EXECUTE render_path('/a/\{{input.sku}}');
-- values that cannot be a segment are refused
SELECT v, r.result, r.problem
FROM (VALUES ('""'), ('"."'), ('".."'), ('null'), ('{}'), ('[1]'), ('"..."'), ('".a"'), ('"%2e"'), ('"../.."'), ('false'), ('1e3')) x(v),
     _sas.render_path('/a/{{v}}/b', jsonb_build_object('v', x.v::jsonb)) r;
-- so are dot segments of the whole
SELECT t, r.result, r.problem ->> 'what' AS what
FROM (VALUES ('/a/../{{v}}'), ('/./{{v}}'), ('/{{v}}/..'), ('/%2E%2e/{{v}}'), ('/.{{v}}'), ('/{{v}}?x=../a/..'), ('/{{v}}/a..b'), ('/{{d}}{{d}}')) x(t),
     _sas.render_path(x.t, '{"v": "v", "d": "."}') r;
-- one whole reference gives its string as it is: a path, or a full URL
SELECT v, r.result, r.problem
FROM (VALUES ('"https://h.example/a/b?c=d%20e#f"'), ('"/next?page=2"'), ('""'), ('7'), ('null'), ('["/x"]'), ('"/a b"'), ('"/a\r\nX: y"'),
             ('"https://h.example/a/../b"'), ('"https://h.example"'), ('"https://..?a"'), ('"/{{v}}"')) x(v),
     _sas.render_path('{{v}}', jsonb_build_object('v', x.v::jsonb)) r;
EXECUTE render_path('/a/{{input.nope}}');
EXECUTE render_path('/a/{{input.nope?}}');
EXECUTE render_path('/a/{{');
SELECT r.* FROM _sas.render_path(NULL, '{}') r;

-- references: place, path, and the first three plain members of each look at the root
SELECT pointer, path, root, member, third, optional, problem
FROM _sas.references('{"a": "{{input.sku}}", "b": ["x {{steps.pick.output.n}} {{steps.\"odd one\".key?}}", {"c/d": "{{item}}"}],
  "filter": "{{input.lines[*] ? (@.q == $.steps.pick.output.q && exists(@.z))}}", "index": "{{input.lines[$.steps.pick.state, $.index to last].id}}",
  "wild": "{{steps.*.output}}", "not plain": "{{steps[0].x}}", "\\{{x}}": "\\{{input.no}}", "math": "{{input.a + $.input.b}}",
  "quoted": "{{input.a ? (@ == \"^a}}\" || !($.item starts with \"b\")).b}}"}');
SELECT * FROM _sas.references('"{{steps.a.token}}"');
SELECT * FROM _sas.references('{"a": 1, "{{b}}": "c"}');
SELECT * FROM _sas.references(NULL);
-- malformed ones are rows as well
SELECT pointer, path, root, optional, split_part(problem, ':', 1) AS problem
FROM _sas.references('["{{", "{{}}", "a{{?}}b", "{{input.}}", "{{input.a[$v]}}", "{{input.a?}} {{..}} {{", "{{input.ok}}"]');
SELECT problem FROM _sas.references('["{{", "{{}}", "{{input.a[$v]}}"]');

-- predicates: true, false, or neither; the leading $. may be left out
SELECT p, (_sas.predicate(p, root.root)).met, (_sas.predicate_problem(p)).problem
FROM (VALUES ('$.input.yes == true'), ('input.yes == true'), ('$.input.n > 2'), ('input.n > 1 && $.key == "k"'), ('$.input.yes'), ('input.sku'),
             ('$.input.nope == 1'), ('$.input.nope'), ('exists($.input.nope)'), ('exists ($.input.sku)'), ('!($.index == 1)'), ('strict $.input.nope == 1'),
             ('input.lines[*].qty > 5'), ('$.input.sku > 1'), ('$.input.none == null'), ('  key == "k" '), ('index == 1'), ('true'), ('1 < $.input.n'),
             ('($.input.sku starts with "A") && $.input.n < 2'), ('$.input.yes ? (@ == true)'), ('input.n / 0 > 1')) v(p), root;
SELECT p, (_sas.predicate_problem(p)).problem IS NOT NULL AS malformed
FROM (VALUES (''), ('$.'), ('input.a = 1'), ('input.a == 1 && input.b == 2'), ('$x == 1'), ('$.a == "'), ('$.a like_regex "("')) v(p);
DO $$
BEGIN
    PERFORM _sas.predicate('$.a ==', '{}');
EXCEPTION WHEN syntax_error THEN
    RAISE NOTICE '%', sqlerrm;
END $$;
SELECT (_sas.predicate('last.done == true', '{"last": {"done": true}}')).met AS last, (_sas.predicate(NULL, '{}')).met, (_sas.predicate_problem(NULL)).problem;
SELECT path, root, member, third, problem FROM _sas.predicate_references('steps.a.output.ok == true && $.steps."b".output.n > $.input.min');
SELECT path, root, split_part(problem, ':', 1) AS problem FROM _sas.predicate_references('$.steps.a.output.ok = true');

-- with_member: as || does it, for any number and kind of members
SELECT bool_and(_sas.with_member(o.object, k.name, v.value)::text = (o.object || jsonb_build_object(k.name, v.value))::text) AS same, count(*)
FROM (SELECT jsonb_object_agg(repeat('k', i % 7) || i, CASE i % 5 WHEN 0 THEN to_jsonb(i) WHEN 1 THEN to_jsonb(i::text) WHEN 2 THEN 'null' WHEN 3 THEN '[1, [2], {"a": true}]' ELSE 'true' END) AS object
      FROM generate_series(1, 100) i UNION ALL SELECT '{}' UNION ALL SELECT '{"a": 1}') o,
     unnest('{k1,a,kkkkkk97,999}'::text[]) k (name), unnest(ARRAY['1', '"x"', 'null', 'true', '[]', '{"q": [1, 2, 3.25]}']::jsonb[]) v (value);

DEALLOCATE render;
DEALLOCATE render_path;
DROP TABLE root;
