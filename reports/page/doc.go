// Package page is the document model of a report and its writers. A Page has tables, figures and transcripts as plain
// values, each with the Source of its numbers; HTML, Text, Markdown, LaTeX, JSON and WriteCSV write it. Page.Draw makes
// it plain data: what JSON writes, and from which alone HTML is written. The package knows nothing of studies, stages
// and stores: package reports computes a page and records its evidence.
package page
