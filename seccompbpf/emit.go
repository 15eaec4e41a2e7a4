package seccompbpf

import "slices"

// An emitter builds a filter from its end to its start, because classic BPF jumps forward only:
// the target of every jump exists before the jump. Equal pieces are emitted once and shared.
type emitter struct {
	reversed []Insn
	shared   map[piece]node
}

// A node is a place in the filter, counted from its end.
type node int

// A piece is an instruction together with where it leads.
type piece struct {
	code    uint16
	k       uint32
	yes, no node
}

func newEmitter() *emitter { return &emitter{shared: make(map[piece]node)} }

func (e *emitter) filter() Filter {
	f := slices.Clone(e.reversed)
	slices.Reverse(f)
	return f
}

func (e *emitter) append(in Insn) node {
	e.reversed = append(e.reversed, in)
	return node(len(e.reversed) - 1)
}

// distance returns how many instructions the next one would skip to get to n.
func (e *emitter) distance(n node) int { return len(e.reversed) - 1 - int(n) }

func (e *emitter) share(p piece, emit func() node) node {
	if n, ok := e.shared[p]; ok {
		return n
	}
	n := emit()
	e.shared[p] = n
	return n
}

func (e *emitter) ret(a Action) node {
	return e.share(piece{code: opRet, k: uint32(a)}, func() node {
		return e.append(Insn{Code: opRet, K: uint32(a)})
	})
}

// load puts the 32 bits at off into A and goes on to next.
func (e *emitter) load(off uint32, next node) node { return e.straight(opLoad, off, next) }

// and keeps the bits of A that are in mask and goes on to next.
func (e *emitter) and(mask uint32, next node) node { return e.straight(opAnd, mask, next) }

func (e *emitter) straight(code uint16, k uint32, next node) node {
	return e.share(piece{code, k, next, next}, func() node {
		e.within(next, 0)
		return e.append(Insn{Code: code, K: k})
	})
}

// jump compares A with k and goes on to yes or no.
func (e *emitter) jump(code uint16, k uint32, yes, no node) node {
	if yes == no {
		return yes
	}
	return e.share(piece{code, k, yes, no}, func() node {
		// One less, as bringing no within reach may add an instruction between.
		yes := e.within(yes, maxSkip-1)
		no := e.within(no, maxSkip)
		return e.append(Insn{Code: code, K: k, Jt: uint8(e.distance(yes)), Jf: uint8(e.distance(no))})
	})
}

// maxSkip is how far a conditional jump reaches; its offsets have 8 bits.
const maxSkip = 255

// within returns a node that does what n does and is at most limit instructions away.
func (e *emitter) within(n node, limit int) node {
	if e.distance(n) <= limit {
		return n
	}
	if in := e.reversed[n]; in.Code == opRet {
		return e.append(in)
	}
	return e.append(Insn{Code: opJa, K: uint32(e.distance(n))})
}
