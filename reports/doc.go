// Package reports turns scores and training curves into pages: statistics, tables, figures, and the files a reader
// opens.
//
// The nouns: a [Study] is what an experiment left behind, as plain values; [Study.Page] computes from it a [Page] of
// sections, each with one [Table] or [Figure]; [Page.HTML], [Page.Text] and [Page.Markdown] write it down. The
// [Evidence] is what a page says it was computed from, so that [Verify] and [Reproduce] compute it again. The
// [Live] is the page of a run that goes on. The
// statistics (proportion.go, paired.go, resample.go, correlation.go) are pure functions that know nothing of pages. [Kind]
// is the stage that collects a Study from artifacts, and [Lint] checks a table of percentages against its
// denominators.
//
// The same study gives the same bytes: no clock, no map order, no random ids. Everything that came from outside
// (labels, logs, settings) is escaped where it is written, never before.
package reports
