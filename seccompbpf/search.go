package seccompbpf

// The kernel's price of a filter is paid at install, by every guest: each instruction is
// translated, and the filter is walked once for every syscall number there is, to learn which
// numbers are always allowed and need not run it again. The search for a number is therefore
// short in both senses.

// A block is a run of spans that have one fate but for single numbers, which a chain of tests
// picks out.
type block struct {
	first  uint32
	odd    []span
	common node
	spans  int
	weight uint32
}

const (
	// walked is more than any kernel's greatest number plus one. What is above is not walked.
	walked = 512
	// maxWalk limits the tests of a block times the numbers that walk through them. A
	// greater one makes filters shorter and walks longer; here their sum was least.
	maxWalk = 128
)

// weight is how many numbers of the span the kernel walks for, and at least one.
func (s span) weight() uint32 { return min(s.last, walked) - min(s.first, walked) + 1 }

// blocks divides the spans into blocks, each as long as can be.
func blocks(s []span) []block {
	var all []block
	for len(s) > 0 {
		b := blockOf(s, s[0].to)
		if len(s) > 1 {
			if other := blockOf(s, s[1].to); other.spans > b.spans {
				b = other
			}
		}
		all = append(all, b)
		s = s[b.spans:]
	}
	return all
}

// blockOf returns the longest block that s begins with and that has this common fate. It is
// empty if there is none.
func blockOf(s []span, common node) block {
	b := block{first: s[0].first, common: common}
	for _, sp := range s {
		w := b.weight + sp.weight()
		if sp.to != common {
			if sp.first != sp.last || b.spans > 0 && uint32(len(b.odd)+1)*w > maxWalk {
				break
			}
			b.odd = append(b.odd, sp)
		}
		b.spans++
		b.weight = w
	}
	return b
}

// search emits a search for the block that A is in, and the one for A in there. Both halves of
// a search weigh about the same.
func (e *emitter) search(b []block) node {
	if len(b) == 1 {
		return e.pick(b[0])
	}
	mid := middle(b)
	low := e.search(b[:mid])
	return e.jump(opJge, b[mid].first, e.search(b[mid:]), low)
}

// pick emits the tests for the odd numbers of a block.
func (e *emitter) pick(b block) node {
	to := b.common
	for i := len(b.odd) - 1; i >= 0; i-- {
		to = e.jump(opJeq, b.odd[i].first, b.odd[i].to, to)
	}
	return to
}

// middle returns where to cut two or more blocks.
func middle(b []block) int {
	total := uint32(0)
	for _, b := range b {
		total += b.weight
	}
	mid := 0
	for left := uint32(0); 2*left+b[mid].weight < total; mid++ {
		left += b[mid].weight
	}
	return max(mid, 1)
}
