// Package jinja renders chat templates: the part of Jinja 3.1 that they use, with the settings of transformers
// (trim_blocks, lstrip_blocks, tojson as json.dumps). A template is rendered as the reference does or refused with
// the line; nothing is approximated. Templates may come from anyone: they read no files and no clock, and time and
// memory are bounded.
//
//	Template  a parsed template; start with Parse, then Render
//	Text     a string that records which of its characters users, tools and models wrote
//	Dict     with List, the values of variables; ParseJSON reads and JSON writes them
//
// Neighbours: token (quoting of JSON).
package jinja
