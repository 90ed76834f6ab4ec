package demoserver

import "cowaudit/internal/demoserver/child"

// shape is a region to be mapped.
type shape struct {
	name   string
	pages  int
	filled int // by the master before it forks
	shared bool
}

// step is an order to one process, 0 being the master, with what it is in words. All steps happen after the forks.
type step struct {
	proc int
	text string
	child.Order
}

const workers = 3

// Regions of the server.
const (
	regionHeap = iota
	regionFresh
	regionTable
)

// shapes and script make up the server's known behaviour. The numbers of pages are prime, so that no sum of others is
// taken for one of them; steps lie apart, in strides, and across each other, so that a page counted by its neighbour shows.
func shapes() []shape {
	return []shape{
		regionHeap:  {name: "heap", pages: 1992, filled: 1992},
		regionFresh: {name: "fresh memory", pages: 601},
		regionTable: {name: "shared memory", pages: 53, filled: 53, shared: true},
	}
}

func script(pageWords uint64) []step {
	return []step{
		{0, "wrote 101 pages, one word in each", order(child.OpWrite, regionHeap, 0, 1, 101, 1)},
		{1, "wrote 211 pages, every word", order(child.OpWrite, regionHeap, 200, 3, 211, pageWords)},
		{2, "wrote 307 pages, with what was there", order(child.OpWrite, regionHeap, 500, 1, 307, 0)},
		{3, "gave up 89 pages", order(child.OpDrop, regionHeap, 1300, 2, 89, 0)},
		{3, "wrote 401 pages never used before", order(child.OpWrite, regionFresh, 100, 1, 401, pageWords)},
		{3, "read 23 pages never used before", order(child.OpRead, regionFresh, 1, 4, 23, 0)},
		{3, "wrote all 53 pages of shared memory", order(child.OpWrite, regionTable, 0, 1, 53, pageWords)},
		{0, "gave up 61 pages", order(child.OpDrop, regionHeap, 1600, 5, 61, 0)},
	}
}

func order(op, region uint64, first, stride, pages, words uint64) child.Order {
	return child.Order{Op: op, Region: region, First: first, Stride: stride, Pages: pages, Words: words}
}
