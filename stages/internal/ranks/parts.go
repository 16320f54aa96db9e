package ranks

import "slices"

// Parts assigns items to n parts of about equal size: the longest item first, each to the part with the fewest
// rows so far, the first of equals. rows holds the size of each item. A part lists its items in ascending order
// and may be empty.
func Parts(rows []int, n int) [][]int {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rows[b] - rows[a] })
	parts, size := make([][]int, n), make([]int, n)
	for _, i := range order {
		least := slices.Index(size, slices.Min(size))
		parts[least] = append(parts[least], i)
		size[least] += rows[i]
	}
	for _, p := range parts {
		slices.Sort(p)
	}
	return parts
}
