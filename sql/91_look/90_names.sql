-- SPDX-License-Identifier: PostgreSQL

-- sas._looking(): the names of these functions, for all who may look at runs. They read views as the role that calls,
-- or ask for its right themselves; the others of this folder are called by these only.
CREATE FUNCTION sas._looking() RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '{explain,timeline,graph,console,
             _explain,_explain_run,_explain_steps,_cause,_elements,_run_facts,_ahead,_visible_run,_short_span,_instant,_count,_title,
             _timeline,_spans,_graph,_run_graph,_workflow_graph,_run_nodes,_mermaid_text,_dot_text,_state_colours,_draw,_check_format,
             _html_escape,_html_badge,_html_time,_html_took,_html_row,_html_table,_html_section,_html_json,_html_page,_html_style,_cut,_layout,_svg,_svg_parts,_html_timeline,
             _newest_run,_recent,_console,_console_all,_console_tiles,_console_waiting,_console_alerts,_console_paused,_console_oldest,_console_agents,_console_errors,_console_house,_console_run,_console_head,_console_step,_console_steps}'::text[]
$$;
