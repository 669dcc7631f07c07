/* SPDX-License-Identifier: PostgreSQL */
/*
 * graph_api.c: _sas.find_cycle() names the steps of a cycle,
 * _sas.is_before() says which step comes before which, and _sas.levels()
 * puts all steps into that order.
 *
 * They check a definition: nodes are steps, numbered from 1, an edge leads
 * from a step to the next.  The walk is a depth-first search with a stack of
 * its own, so that ten thousand steps in a row do not exhaust the C stack.
 * The stack is always a path; an edge back to a node on it closes a cycle,
 * which is the rest of the stack from that node on.
 */
#include "postgres.h"

#include "base/array.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(sas_api_find_cycle);
PG_FUNCTION_INFO_V1(sas_api_is_before);
PG_FUNCTION_INFO_V1(sas_api_levels);

/* several arrays of that many int4 are allocated */
#define SAS_MAX_NODES ((int) (MaxAllocSize / sizeof(int) / 2))

typedef enum SasColor
{
	SAS_UNSEEN,
	SAS_ON_PATH,
	SAS_DONE
} SasColor;

/* The edges of node v are to[first[v]] up to, not including, to[first[v + 1]]. */
typedef struct SasGraph
{
	int			n;
	int		   *first;			/* [n + 2] */
	int		   *to;
} SasGraph;

/* The elements of a one-dimensional array of int4 without nulls. */
static const int *
graph_api_elements(ArrayType *array, int *n)
{
	if (ARR_ELEMTYPE(array) != INT4OID || ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("edges must be one-dimensional arrays of integers")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("edges must not contain nulls")));
	*n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	return (const int *) ARR_DATA_PTR(array);
}

/* Sorts the edges by the node they come from: count, sum up, distribute. */
static void
graph_api_build(SasGraph *graph, const int *from, const int *to, int n_edges)
{
	int		   *next;

	for (int i = 0; i < n_edges; i++)
		if (from[i] < 1 || from[i] > graph->n || to[i] < 1 || to[i] > graph->n)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("edge from %d to %d is not among nodes 1 to %d", from[i], to[i], graph->n)));

	graph->first = palloc0(sizeof(int) * ((Size) graph->n + 2));
	graph->to = palloc(sizeof(int) * ((Size) n_edges + 1));
	for (int i = 0; i < n_edges; i++)
		graph->first[from[i] + 1]++;
	for (int v = 1; v <= graph->n; v++)
		graph->first[v + 1] += graph->first[v];

	next = palloc(sizeof(int) * ((Size) graph->n + 2));
	memcpy(next, graph->first, sizeof(int) * ((Size) graph->n + 2));
	for (int i = 0; i < n_edges; i++)
		graph->to[next[from[i]]++] = to[i];
	pfree(next);
}

/*
 * Walks what can be reached from root and was not visited before.  Returns
 * the length of a cycle, or 0; *start is its first position in path.
 * cursor[v] is the next edge of v.
 */
static int
graph_api_walk(const SasGraph *graph, int root, char *color, int *cursor, int *path, int *start)
{
	int			depth = 1;

	path[0] = root;
	color[root] = SAS_ON_PATH;
	while (depth > 0)
	{
		int			v = path[depth - 1];
		int			w;

		CHECK_FOR_INTERRUPTS();
		if (cursor[v] == graph->first[v + 1])
		{
			color[v] = SAS_DONE;
			depth--;
			continue;
		}
		w = graph->to[cursor[v]++];
		if (color[w] == SAS_UNSEEN)
		{
			color[w] = SAS_ON_PATH;
			path[depth++] = w;
		}
		else if (color[w] == SAS_ON_PATH)
		{
			*start = depth - 1;
			while (path[*start] != w)
				(*start)--;
			return depth - *start;
		}
	}
	return 0;
}

static ArrayType *
graph_api_array(const int *nodes, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * ((Size) n + 1));

	for (int i = 0; i < n; i++)
		elements[i] = Int32GetDatum(nodes[i]);
	return sas_base_array(elements, n, INT4OID);
}

/* The first three arguments of both functions: edges and the number of nodes. */
static SasGraph
graph_api_from_arguments(FunctionCallInfo fcinfo)
{
	int			n_from;
	int			n_to;
	const int  *from = graph_api_elements(PG_GETARG_ARRAYTYPE_P(0), &n_from);
	const int  *to = graph_api_elements(PG_GETARG_ARRAYTYPE_P(1), &n_to);
	SasGraph	graph = {.n = PG_GETARG_INT32(2)};

	if (n_from != n_to)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("edges have %d beginnings and %d ends", n_from, n_to)));
	if (graph.n < 0 || graph.n > SAS_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("the number of nodes must be from 0 to %d", SAS_MAX_NODES)));
	graph_api_build(&graph, from, to, n_from);
	return graph;
}

Datum
sas_api_find_cycle(PG_FUNCTION_ARGS)
{
	SasGraph	graph = graph_api_from_arguments(fcinfo);
	char	   *color = palloc0((Size) graph.n + 1);
	int		   *path = palloc(sizeof(int) * ((Size) graph.n + 1));
	int		   *cursor = palloc(sizeof(int) * ((Size) graph.n + 2));
	int			length = 0;
	int			start = 0;

	memcpy(cursor, graph.first, sizeof(int) * ((Size) graph.n + 2));
	for (int v = 1; v <= graph.n && length == 0; v++)
		if (color[v] == SAS_UNSEEN)
			length = graph_api_walk(&graph, v, color, cursor, path, &start);
	PG_RETURN_ARRAYTYPE_P(graph_api_array(path + start, length));
}

/* The nodes so that each edge leads forward; what lies on a cycle is left out.  Returns their number. */
static int
graph_api_sort(const SasGraph *graph, int *sorted)
{
	int		   *needs = palloc0(sizeof(int) * ((Size) graph->n + 1));
	int			n = 0;

	for (int i = 0; i < graph->first[graph->n + 1]; i++)
		needs[graph->to[i]]++;
	for (int v = 1; v <= graph->n; v++)
		if (needs[v] == 0)
			sorted[n++] = v;
	for (int done = 0; done < n; done++)
		for (int i = graph->first[sorted[done]]; i < graph->first[sorted[done] + 1]; i++)
			if (--needs[graph->to[i]] == 0)
				sorted[n++] = graph->to[i];
	pfree(needs);
	return n;
}

/*
 * Pairs are processed in blocks of those with up to 64 different first
 * nodes, one bit each.  The bits go along the edges once per block, so
 * memory stays linear, and each edge is walked once for 64 first nodes.
 */
Datum
sas_api_is_before(PG_FUNCTION_ARGS)
{
	SasGraph	graph = graph_api_from_arguments(fcinfo);
	int			n_pairs;
	int			n_seconds;
	const int  *firsts = graph_api_elements(PG_GETARG_ARRAYTYPE_P(3), &n_pairs);
	const int  *seconds = graph_api_elements(PG_GETARG_ARRAYTYPE_P(4), &n_seconds);
	Datum	   *answers = palloc(sizeof(Datum) * ((Size) n_pairs + 1));
	int		   *sorted = palloc(sizeof(int) * ((Size) graph.n + 1));
	int			n_sorted = graph_api_sort(&graph, sorted);
	uint64	   *own = palloc0(sizeof(uint64) * ((Size) graph.n + 1));
	uint64	   *reached = palloc(sizeof(uint64) * ((Size) graph.n + 1));

	if (n_pairs != n_seconds)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("pairs have %d first and %d second nodes", n_pairs, n_seconds)));
	for (int i = 0; i < n_pairs; i++)
		if (firsts[i] < 1 || firsts[i] > graph.n || seconds[i] < 1 || seconds[i] > graph.n)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("pair of %d and %d is not among nodes 1 to %d", firsts[i], seconds[i], graph.n)));

	for (int start = 0, end; start < n_pairs; start = end)
	{
		int			bits = 0;

		CHECK_FOR_INTERRUPTS();
		memset(reached, 0, sizeof(uint64) * ((Size) graph.n + 1));
		for (end = start; end < n_pairs && (bits < 64 || own[firsts[end]] != 0); end++)
			if (own[firsts[end]] == 0)
				own[firsts[end]] = UINT64CONST(1) << bits++;
		for (int k = 0; k < n_sorted; k++)
			for (int i = graph.first[sorted[k]]; i < graph.first[sorted[k] + 1]; i++)
				reached[graph.to[i]] |= reached[sorted[k]] | own[sorted[k]];
		for (int i = start; i < end; i++)
			answers[i] = BoolGetDatum((reached[seconds[i]] & own[firsts[i]]) != 0);
		for (int i = start; i < end; i++)
			own[firsts[i]] = 0;
	}
	PG_RETURN_ARRAYTYPE_P(sas_base_array(answers, n_pairs, BOOLOID));
}

/*
 * _sas.levels(from_nos, to_nos, n): for each of nodes 1 to n, the length of
 * the longest path that leads to it.  Every node is taken once, when the
 * last edge to it has been walked.  Nodes on a cycle, which no stored
 * definition has, keep their value.
 */
Datum
sas_api_levels(PG_FUNCTION_ARGS)
{
	int			n_from;
	int			n_to;
	const int  *from = graph_api_elements(PG_GETARG_ARRAYTYPE_P(0), &n_from);
	const int  *to = graph_api_elements(PG_GETARG_ARRAYTYPE_P(1), &n_to);
	SasGraph	graph = {PG_GETARG_INT32(2)};
	int		   *needs;
	int		   *level;
	int		   *queue;
	Datum	   *result;
	int			head = 0;
	int			tail = 0;

	if (n_from != n_to || graph.n < 0 || graph.n > SAS_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("edges do not match nodes")));
	graph_api_build(&graph, from, to, n_from);
	needs = palloc0(sizeof(int) * ((Size) graph.n + 1));
	level = palloc0(sizeof(int) * ((Size) graph.n + 1));
	queue = palloc(sizeof(int) * ((Size) graph.n + 1));
	for (int i = 0; i < n_to; i++)
		needs[to[i]]++;
	for (int v = 1; v <= graph.n; v++)
		if (needs[v] == 0)
			queue[tail++] = v;
	while (head < tail)
	{
		int			v = queue[head++];

		CHECK_FOR_INTERRUPTS();
		for (int i = graph.first[v]; i < graph.first[v + 1]; i++)
		{
			int			w = graph.to[i];

			level[w] = Max(level[w], level[v] + 1);
			if (--needs[w] == 0)
				queue[tail++] = w;
		}
	}
	result = palloc(sizeof(Datum) * ((Size) graph.n + 1));
	for (int v = 1; v <= graph.n; v++)
		result[v - 1] = Int32GetDatum(level[v]);
	PG_RETURN_ARRAYTYPE_P(sas_base_array(result, graph.n, INT4OID));
}
