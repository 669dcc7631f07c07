-- SPDX-License-Identifier: PostgreSQL
--
-- HTML: the parts that pages are made of. Every value from outside goes through _sas.html_escape;
-- parameters named "html" are escaped already.

-- _sas.html_escape(value): the value as text between tags or in a quoted attribute; null gives ''.
CREATE FUNCTION _sas.html_escape(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(replace(replace(replace(replace(replace(
               translate(value,
                         E'\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12'
                         || E'\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f', ''),
               '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#39;'), '');
END;

-- _sas.html_badge(word): a state, result or similar word, coloured by its class.
CREATE FUNCTION _sas.html_badge(word text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN word IS NULL THEN ''
                ELSE format('<span class="b s-%s">%s</span>', regexp_replace(word, '[^a-z]', '', 'g'),
                            _sas.html_escape(word)) END;
END;

-- _sas.html_time(at, now): how long ago it was, with the instant as a title.
CREATE FUNCTION _sas.html_time(at timestamptz, now timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN at IS NULL THEN ''
                ELSE format('<time title="%s">%s</time>', _sas.html_escape(at::text),
                            CASE WHEN at > now THEN 'in ' || _sas.short_span(at - now)
                                 ELSE _sas.short_span(now - at) || ' ago' END) END;
END;

-- _sas.html_took(ms): a duration in the largest unit that is useful.
CREATE FUNCTION _sas.html_took(ms float8) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN ms < 10 THEN round(ms::numeric, 1) || ' ms' WHEN ms < 1000 THEN round(ms) || ' ms'
                WHEN ms < 60000 THEN round(ms::numeric / 1000, 1) || ' s'
                ELSE _sas.short_span(ms * interval '1 ms') END;
END;

-- _sas.html_table(heads, cells, otherwise): a table. cells: html, an array with one cell per head for each
-- row; null is empty. otherwise: the text if there are no rows. A head that begins with # is right-aligned.
-- Each cell carries its head, because on a narrow screen a row becomes a list.
CREATE FUNCTION _sas.html_table(heads text[], cells text[], otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN cells IS NULL THEN format('<p class="none">%s</p>', _sas.html_escape(otherwise))
           ELSE (WITH head AS MATERIALIZED (
                     SELECT u.n, format('%s', CASE WHEN u.h LIKE '#%' THEN ' class="n"' END) AS class,
                            _sas.html_escape(ltrim(u.h, '#')) AS text
                     FROM unnest(heads) WITH ORDINALITY AS u (h, n))
                 SELECT '<div class="scroll"><table><thead><tr>'
                        || (SELECT string_agg(format('<th%s>%s</th>', h.class, h.text), '' ORDER BY h.n)
                            FROM head h)
                        || E'</tr></thead><tbody>\n' || string_agg(
                               concat(CASE WHEN h.n = 1 THEN '<tr>' END,
                                      format('<td%s data-l="%s">%s</td>', h.class, h.text, c.html),
                                      CASE WHEN h.n = cardinality(heads) THEN E'</tr>\n' END), ''
                               ORDER BY c.n)
                        || '</tbody></table></div>'
                 FROM unnest(cells) WITH ORDINALITY AS c (html, n)
                 JOIN head h ON h.n = (c.n - 1) % cardinality(heads) + 1) END;
END;

-- _sas.html_section(id, title, html, note): a section of a page.
CREATE FUNCTION _sas.html_section(id text, title text, html text, note text DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format(E'<section id="%s"><h2>%s%s</h2>\n%s</section>\n', _sas.html_escape(id),
                  _sas.html_escape(title),
                  CASE WHEN note IS NULL THEN '' ELSE '<small>' || _sas.html_escape(note) || '</small>' END,
                      html);
END;

-- _sas.html_more(total, shown, place): how many rows are left out, and where to see them.
CREATE FUNCTION _sas.html_more(total bigint, shown int, place text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN total > shown THEN format('<p class="dim">and %s more: see %s</p>', total - shown, place)
           ELSE '' END;
END;

-- _sas.html_json(label, value, most): a value under its label, a short value in one line; its first "most"
-- characters. OFFSET 0: the text of a large value is made once. Below 50 levels, spaces would be most of it.
CREATE FUNCTION _sas.html_json(label text, value jsonb, most int DEFAULT 20000) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN value IS NULL THEN ''
                ELSE format('<div class="json"><h4>%s</h4><pre>%s</pre></div>', _sas.html_escape(label),
                            _sas.html_escape(left(v.t, most) || CASE
                                             WHEN length(v.t) > most
                                             THEN format(E'\n... and %s characters more',
                                                         length(v.t) - most) ELSE '' END)) END
    FROM (SELECT CASE WHEN length(s.t) <= 110 OR length(s.t) > 10 * most OR value @? '$.**{50}' THEN s.t
                 ELSE jsonb_pretty(value) END AS t
          FROM (SELECT CASE WHEN coalesce(_sas.written_size(value, 100 * most) > 100 * most, false)
                       THEN format('%s: too large for this page',
                                   pg_size_pretty(_sas.written_size(value, 100 * most)))
                       ELSE value::text END AS t OFFSET 0) s OFFSET 0) v;
END;

-- _sas.url_text(value): percent-encoded, for one name or value of a query or one segment of a path.
CREATE FUNCTION _sas.url_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(string_agg(
               CASE WHEN c ~ '^[A-Za-z0-9_.~-]$' AND ascii(c) < 128 THEN c
               ELSE regexp_replace(upper(encode(convert_to(c, 'UTF8'), 'hex')), '(..)', E'%\\1', 'g') END, ''
               ORDER BY n), '')
    FROM string_to_table(value, NULL) WITH ORDINALITY AS u (c, n);
END;

-- _sas.url_query(args): "?name=value&name=value", or nothing.
CREATE FUNCTION _sas.url_query(args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce('?' || string_agg(_sas.url_text(key) || '=' || _sas.url_text(value), '&' ORDER BY key),
                    '')
    FROM jsonb_each_text(jsonb_strip_nulls(args));
END;

-- _sas.html_link(look, path, html): html as a link to a page, if the pages have links.
CREATE FUNCTION _sas.html_link(look _sas.look, path text, html text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN (look).root IS NULL OR coalesce(html, '') = '' THEN html
           ELSE format('<a href="%s">%s</a>', _sas.html_escape((look).root || path), html) END;
END;

-- _sas.html_style(): the style sheet; light, or dark if the reader's system is.
CREATE FUNCTION _sas.html_style() RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT '
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --ink: #1c2024; --dim: #6b7280;
  --line: #e5e7eb; --zebra: #fafbfc; --link: #2563eb;
  --grey: #6b7280; --grey-bg: #f1f2f4; --blue: #1d4ed8; --blue-bg: #e3ecfd; --cyan: #0e7490;
  --cyan-bg: #dcf3f8; --violet: #6d28d9; --violet-bg: #ede8fd;
  --green: #15803d; --green-bg: #def5e5; --red: #b91c1c; --red-bg: #fde5e5; --orange: #c2410c;
  --orange-bg: #feecdc; --amber: #a16207; --amber-bg: #fbf3d3; }
@media (prefers-color-scheme: dark) { :root { --bg: #101215; --card: #191c20; --ink: #e6e8eb; --dim: #9299a3;
  --line: #2b3037; --zebra: #1d2125; --link: #7aa5ff;
  --grey: #a5acb5; --grey-bg: #2a2e34; --blue: #8db4ff; --blue-bg: #1d2c4d; --cyan: #6fd3e8;
  --cyan-bg: #12343c; --violet: #b8a1ff; --violet-bg: #2e2550;
  --green: #6fdc97; --green-bg: #14351f; --red: #ff9090; --red-bg: #451d1d; --orange: #ffb27a;
  --orange-bg: #43260f; --amber: #ecc94f; --amber-bg: #3a300c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 24px 60px; max-width: 1240px; background: var(--bg); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; margin: 0 2px 16px; }
h1 { font-size: 21px; margin: 0; letter-spacing: -.01em; } header .dim { margin-left: auto; }
h2 { font-size: 15px; margin: 0 0 10px; }
  h2 small { font-weight: 400; color: var(--dim); margin-left: 10px; font-size: 12.5px; }
h4 { font-size: 11px; margin: 0 0 3px; color: var(--dim); text-transform: uppercase; letter-spacing: .05em;
  font-weight: 600; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px;
  margin: 0 0 14px; }
.dim, .none { color: var(--dim); } .none { margin: 0; } .bad { color: var(--red); }
  code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
  th { text-align: left; font-size: 11.5px; font-weight: 600; color: var(--dim); }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
  tr:last-child > td { border-bottom: 0; } th { white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
  td time { white-space: nowrap; } td { overflow-wrap: break-word; max-width: 460px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(106px, 1fr)); gap: 10px;
  margin: 0 0 14px; }
.tile { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--c, var(--grey));
  border-radius: 8px; padding: 8px 12px; }
  .tile b { display: block; font-size: 22px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile.zero b { color: var(--dim); font-weight: 400; }
  .tile span { color: var(--dim); font-size: 12px; white-space: nowrap; }
.b { display: inline-block; padding: 0 8px; border-radius: 20px; font-size: 12px; line-height: 19px;
  white-space: nowrap; color: var(--c, var(--grey)); background: var(--f, var(--grey-bg)); }
.s-ready, .s-pending, .s-scheduled, .s-queue, .s-worker, .s-agent, .s-scheduler { --c: var(--cyan);
  --f: var(--cyan-bg); } .s-running, .s-reply { --c: var(--blue); --f: var(--blue-bg); }
.s-suspended, .s-signal, .s-timer, .s-child, .s-poll, .s-waited, .s-elements, .s-turn, .s-fallback,
  .s-startat { --c: var(--violet); --f: var(--violet-bg); }
.s-succeeded, .s-success, .s-closed, .s-ok { --c: var(--green); --f: var(--green-bg); }
  .s-failed, .s-error, .s-timedout, .s-lost, .s-open, .s-breaker, .s-disabled, .s-agentdisabled, .s-secret,
  .s-stepfailed, .s-undofailed, .s-breakeropen, .s-deadline, .s-stuck, .s-hookfailed,
  .s-workerslots { --c: var(--red); --f: var(--red-bg); }
.s-compensating, .s-undo, .s-cooloff, .s-retry, .s-halfopen, .s-slot, .s-rate, .s-notok { --c: var(--orange);
  --f: var(--orange-bg);
  } .s-compensated, .s-warning, .s-paused, .s-resume, .s-queuepaused, .s-workflowpaused,
  .s-place { --c: var(--amber); --f: var(--amber-bg); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 10px 18px; margin: 0;
  } dt { font-size: 11.5px; color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
ul.why { margin: 0; padding: 0; list-style: none; }
  ul.why li { padding: 5px 0 5px 14px; border-left: 3px solid var(--c, var(--line)); margin: 0 0 5px;
  overflow-wrap: anywhere; } ul.why li.run { border-color: var(--ink); font-weight: 600; }
.json { margin: 8px 0 0; } pre { margin: 0; padding: 8px 10px; background: var(--zebra);
  border: 1px solid var(--line); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere;
  max-height: 420px; overflow-y: auto; }
details { border-top: 1px solid var(--line); padding: 6px 0; } details:first-of-type { border-top: 0; }
  summary { cursor: pointer; } summary b { margin-right: 8px; } summary .dim { margin-left: 8px; }
  details .in { padding: 2px 0 8px 18px; }
svg { display: block; } svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  fill: var(--c, var(--ink)); } svg .name { font-weight: 600; font-size: 13px; }
  svg .sub { font-size: 11px; opacity: .85; }
svg rect { fill: var(--f, var(--grey-bg)); stroke: var(--c, var(--grey)); stroke-width: 1.3; }
  svg path { fill: none; stroke: var(--dim); stroke-width: 1.3; opacity: .65; }
  svg path.stand { stroke-dasharray: 4 3; } svg circle { fill: var(--dim); }
  svg marker path { fill: var(--dim); stroke: none; opacity: 1; }
.tl { display: grid; grid-template-columns: minmax(110px, 200px) 1fr 76px; gap: 3px 12px;
  align-items: center; } .tl .l { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
  .tl .r { text-align: right; color: var(--dim); font-size: 12px; font-variant-numeric: tabular-nums; }
.track { position: relative; height: 15px; background: var(--zebra); border-radius: 4px; }
  .bar { position: absolute; top: 1px; bottom: 1px; min-width: 3px; border-radius: 3px;
  background: var(--c, var(--grey)); } .bar.thin { top: 6px; bottom: 6px; opacity: .55; }
  .bar.goes { border-top-right-radius: 9px; border-bottom-right-radius: 9px; opacity: .8; }
.axis { position: relative; height: 16px; color: var(--dim); font-size: 11px; }
  .axis span { position: absolute; white-space: nowrap; }
  .meter { display: inline-block; width: 64px; height: 7px; background: var(--grey-bg); border-radius: 4px;
  overflow: hidden; margin-right: 7px; vertical-align: 1px; }
  .meter i { display: block; height: 100%; background: var(--blue); }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
  .tiles a { color: inherit; } .tiles a:hover { text-decoration: none; }
  :focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 12px; top: 6px; padding: 4px 10px;
  background: var(--card); border: 1px solid var(--link); border-radius: 6px; z-index: 1; }
nav { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 16px;
  margin: 0 2px 14px; } nav form { margin-left: auto; } nav button { padding: 2px 10px; font-size: 12.5px; }
  nav a[aria-current] { color: var(--ink); font-weight: 600; }
.notice { border-left: 4px solid var(--blue); white-space: pre-wrap; overflow-wrap: anywhere; }
form { display: flex; flex-wrap: wrap; gap: 8px 12px; align-items: end; margin: 0; }
  form label { display: grid; gap: 2px; font-size: 12px; color: var(--dim); max-width: 100%; }
  form label.yes { display: flex; align-items: center; gap: 6px; color: var(--ink); }
input, select, button, textarea { font: inherit; color: var(--ink); background: var(--zebra);
  border: 1px solid var(--line); border-radius: 6px; padding: 4px 8px; max-width: 100%; }
  button { background: var(--card); border-color: var(--link); color: var(--link); cursor: pointer; }
.acts { display: flex; flex-wrap: wrap; gap: 6px; margin: 10px 0 0; } td .acts { margin: 0; }
  details.act { border: 1px solid var(--line); border-radius: 6px; padding: 2px 10px; }
  details.act[open] { flex-basis: 100%; padding-bottom: 10px; } details.act form { margin-top: 6px; }
@media (max-width: 720px) { body { padding: 12px 10px 40px; } section { padding: 12px; }
  header .dim { margin-left: 0; } .scroll table, .scroll tbody, .scroll tr { display: block; }
  .scroll thead { display: none; } .scroll tr { border-bottom: 1px solid var(--line); padding: 6px 0; }
  .scroll tr:last-child { border-bottom: 0; }
  .scroll td, .scroll td.n { display: grid; grid-template-columns: 92px minmax(0, 1fr); gap: 8px; border: 0;
  padding: 1px 0; text-align: left; max-width: none; white-space: normal; overflow-wrap: anywhere; }
  .scroll td:empty { display: none; } .scroll td > * { justify-self: start; }
  .scroll td::before { content: attr(data-l); color: var(--dim); font-size: 12px; }
  dl { grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); }
  .tl { grid-template-columns: minmax(70px, 110px) 1fr 56px; } form label, form input { width: 100%; }
  form label.yes input { width: auto; } }
@media print { body { background: none; } section { break-inside: avoid; } }
'::text;
END;

-- _sas.html_page(look, title, html): the whole document. A page that stands alone loads nothing, and may
-- not fetch or run anything; a page with links may run the script of its server, and connect to that server
-- only.
CREATE FUNCTION _sas.html_page(look _sas.look, title text, html text) RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT E'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
           || format(E'<meta http-equiv="Content-Security-Policy" content="default-src ''none''; %s">\n',
                     CASE WHEN (look).root IS NULL
                     THEN 'style-src ''unsafe-inline''; form-action ''none''; base-uri ''none'''
                     ELSE 'style-src ''unsafe-inline''; script-src ''self''; connect-src ''self''; '
                          'form-action ''self''; base-uri ''none''' END)
           || '<meta name="viewport" content="width=device-width, initial-scale=1">'
           -- without a referrer, browsers send a form with the origin "null", which the server refuses
           || format(E'<meta name="referrer" content="%s">\n',
                     CASE WHEN (look).root IS NULL THEN 'no-referrer' ELSE 'same-origin' END)
           || format(E'<title>%s</title>\n<style>\n%s</style>%s</head>\n<body>\n%s%s</body></html>\n',
                     _sas.html_escape(title), _sas.html_style(),
                     CASE WHEN (look).root IS NOT NULL
                     THEN format('<script src="%s/console.js" defer=""></script>',
                                 _sas.html_escape((look).root)) END,
                     CASE WHEN (look).notice <> ''
                     THEN format(E'<section class="notice" role="status">%s</section>\n',
                                 _sas.html_escape((look).notice)) END, html);
END;
