// Package lint checks a printed table of percentages against its denominators: [ReadTable] reads a [Table] from CSV,
// and [Check] returns the [Finding] list of impossible fractions, permuted columns, wrong sums and wrong marks. It
// depends on no other package of rcgrpo.
package lint
