// Package dag orders directed graphs whose vertices are the integers 0 … n-1. Order is the function to start with.
package dag

import "slices"

// Order returns the vertices such that each follows those it needs, otherwise by number. Time and memory are
// linear in vertices and edges. For every edge that closes a cycle, Order also returns the cycle, in which
// each vertex needs the next and the last needs the first, and ignores that edge.
func Order(n int, needs func(v int) []int) (order []int, cycles [][]int) {
	seen := make([]bool, n)
	onPath := make([]int, n) // position in path from 1; 0: not on it
	order = make([]int, 0, n)
	var path []int
	var visit func(v int)
	visit = func(v int) {
		seen[v] = true
		path = append(path, v)
		onPath[v] = len(path)
		for _, w := range needs(v) {
			if !seen[w] {
				visit(w)
			} else if onPath[w] > 0 {
				cycles = append(cycles, slices.Clone(path[onPath[w]-1:]))
			}
		}
		path, onPath[v] = path[:len(path)-1], 0
		order = append(order, v)
	}
	for v := range n {
		if !seen[v] {
			visit(v)
		}
	}
	return order, cycles
}
