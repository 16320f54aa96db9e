// Package reports makes pages from scores and training curves, and checks pages.
//
// A [Study] holds the results of an experiment as plain values. [Study.Page] computes a [page.Page] from it, the
// document that package reports/page writes as HTML, text, Markdown, LaTeX and JSON. [Kind] is the stage kind that
// collects a Study from artifacts. Its page contains an [Evidence]: the inputs and the page as data. [Verify] and
// [Reproduce] recompute the page, or one cell, from the evidence. A [Bundle] is a page with its artifacts in one file.
// Package reports/live serves the page of a running experiment.
//
// Equal studies give identical pages: no clock, no map order, no random ids. Foreign text (labels, logs, settings) is
// escaped by the writers, never before.
//
// A comparison passes through four types: a [Comparison] is a compare block, a [Contrast] one tested pair of its arms;
// a contrast whose p-value is adjusted is a claim; a [page.Effect] is a claim in its unit, and a [page.Answer] the
// decision about all pairs of a block.
//
// sections.go lists the sections of the page with their tables and figures. Tables and figures of scores select
// [episodes], those of metrics select [trainings]. Both show a [measure] of the selection, from which the source of
// each value follows (selections.go). Their files: map.go, results.go (references.go beside published values),
// differences.go (also the reward token), training.go (figures in curves.go), transcripts.go, data.go, stages.go
// (settings, runs and evidence). contrast.go tests, answers.go decides; first.go has the first screen, design.go the
// differences between arms and their order, looks.go their colours and markers. Package reports/stats computes the
// statistics.
package reports
