// Package dag orders directed graphs whose vertices are the integers 0 … n-1. Order is the function to start with.
package dag

import "slices"

// Order returns the vertices such that each follows those it needs, otherwise by number. Time and memory are
// linear in vertices and edges. For every edge that closes a cycle, Order also returns the cycle, in which
// each vertex needs the next and the last needs the first, and ignores that edge.
func Order(n int, needs func(v int) []int) (order []int, cycles [][]int) {
	const (
		unseen = iota
		open
		done
	)
	type frame struct{ v, next int }
	state := make([]uint8, n)
	order = make([]int, 0, n)
	var path []frame // a stack instead of a deep recursion
	for root := range n {
		if state[root] != unseen {
			continue
		}
		state[root] = open
		path = append(path[:0], frame{v: root})
		for len(path) > 0 {
			top := &path[len(path)-1]
			ws := needs(top.v)
			if top.next == len(ws) {
				state[top.v] = done
				order = append(order, top.v)
				path = path[:len(path)-1]
				continue
			}
			w := ws[top.next]
			top.next++
			switch state[w] {
			case unseen:
				state[w] = open
				path = append(path, frame{v: w})
			case open:
				var cycle []int
				for i := len(path) - 1; i >= 0; i-- {
					cycle = append(cycle, path[i].v)
					if path[i].v == w {
						break
					}
				}
				slices.Reverse(cycle)
				cycles = append(cycles, cycle)
			}
		}
	}
	return order, cycles
}
