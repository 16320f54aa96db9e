// Package stats holds the statistics of a page as pure functions: intervals ([Wilson], [ClusteredWilson], [Newcombe],
// [TInterval], [Welch]), tests ([McNemar], [Fisher], [TTest], [Holm]), the family bootstrap ([ClusterBootstrap]) and
// [Correlate]. An [Interval] that cannot be estimated is [Unknown]. Quantiles and the regularized beta function come
// from gonum. Package reports is the only caller.
package stats
