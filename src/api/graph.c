/* SPDX-License-Identifier: PostgreSQL */
/*
 * graph.c: sas._find_cycle(), which names the steps that need each other.
 *
 * A definition is checked with it: nodes are steps, numbered from 1, an edge
 * leads from one to the next.  The walk is a depth-first search with a stack
 * of its own, so that ten thousand steps in a row do not exhaust the C stack.
 * The stack is at any time a path; an edge back to a node on it closes a cycle,
 * which is the rest of the stack from that node on.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(sas_api_find_cycle);

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
sas_graph_elements(ArrayType *array, int *n)
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
sas_graph_build(SasGraph *graph, const int *from, const int *to, int n_edges)
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
 * Walks what can be reached from root and was not seen before.  Returns the
 * length of a cycle, or 0; *start is its first place in path.  cursor[v] is
 * the next edge of v to look at.
 */
static int
sas_graph_walk(const SasGraph *graph, int root, char *color, int *cursor, int *path, int *start)
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
sas_graph_array(const int *nodes, int n)
{
	Datum	   *elements = palloc(sizeof(Datum) * ((Size) n + 1));

	for (int i = 0; i < n; i++)
		elements[i] = Int32GetDatum(nodes[i]);
	return construct_array(elements, n, INT4OID, sizeof(int32), true, TYPALIGN_INT);
}

Datum
sas_api_find_cycle(PG_FUNCTION_ARGS)
{
	int			n_from;
	int			n_to;
	const int  *from = sas_graph_elements(PG_GETARG_ARRAYTYPE_P(0), &n_from);
	const int  *to = sas_graph_elements(PG_GETARG_ARRAYTYPE_P(1), &n_to);
	SasGraph	graph = {.n = PG_GETARG_INT32(2)};
	char	   *color;
	int		   *cursor;
	int		   *path;
	int			length = 0;
	int			start = 0;

	if (n_from != n_to)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("edges have %d beginnings and %d ends", n_from, n_to)));
	if (graph.n < 0 || graph.n > SAS_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("the number of nodes must be from 0 to %d", SAS_MAX_NODES)));

	sas_graph_build(&graph, from, to, n_from);
	color = palloc0((Size) graph.n + 1);
	path = palloc(sizeof(int) * ((Size) graph.n + 1));
	cursor = palloc(sizeof(int) * ((Size) graph.n + 2));
	memcpy(cursor, graph.first, sizeof(int) * ((Size) graph.n + 2));
	for (int v = 1; v <= graph.n && length == 0; v++)
		if (color[v] == SAS_UNSEEN)
			length = sas_graph_walk(&graph, v, color, cursor, path, &start);
	PG_RETURN_ARRAYTYPE_P(sas_graph_array(path + start, length));
}
