package ranks

// Blocks is the number of blocks of a flat buffer. Sums over a buffer are sums over its blocks in order, so they do
// not depend on the number of ranks.
const Blocks = 64

// blockUnit divides the length of a block: kernels take 16 numbers at a time, and a tail.
const blockUnit = 16

// Block returns the range of block b of a buffer of n numbers. All blocks have the same length, a multiple of 16,
// except that the last ones may be shorter or empty.
func Block(n int64, b int) (from, to int64) {
	length := (n + Blocks*blockUnit - 1) / (Blocks * blockUnit) * blockUnit
	return min(n, int64(b)*length), min(n, int64(b+1)*length)
}

// BlocksOf returns the blocks, first to before last, that a rank of count ranks owns.
func BlocksOf(rank, count int) (first, last int) {
	return Blocks * rank / count, Blocks * (rank + 1) / count
}

// Shard returns the range of a buffer of n numbers that a rank of count ranks owns: whole blocks.
func Shard(n int64, rank, count int) (from, to int64) {
	first, last := BlocksOf(rank, count)
	from, _ = Block(n, first)
	_, to = Block(n, last-1)
	return from, to
}
