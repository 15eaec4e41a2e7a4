//go:build linux

package nsexec

import (
	"encoding/binary"

	"github.com/populationgenomics/postern-go/internal/stage"
)

// maxApart is up to how many CPUs apart takes effect: what one slot has bits
// for. With more of them the kernel reports none.
const maxApart = 64

// apart lets the init go on on another CPU than the stage that has just started
// it, if there is one. Both have half a millisecond's work inside the kernel to
// do, which nothing interrupts, and a kernel may well leave a new process where
// its parent is and other CPUs idle.
//
// The init may use the CPUs that it could use before: it is set to all, which
// is what a process has that no affinity was ever set for, and follows its
// cpuset; or, if the stage itself is allowed fewer than its cpuset has, to those.
func (n *netns) apart(c *compiler, init stage.Slot) {
	if !n.split {
		return
	}
	step := do("let the init go on beside the stage")
	ours, cpu, others, all, widest := c.Slot(), c.Slot(), c.Slot(), c.Slot(), c.Slot()
	var restricted, done stage.Label
	set := func(pid, mask stage.Slot) {
		c.Try(stage.Discard, step, stage.SchedSetaffinity, pid, stage.Imm(8), stage.SlotAddr(mask))
	}
	self := c.Slot() // 0 is the caller
	c.Try(stage.Discard, step, stage.SchedGetaffinity, self, stage.Imm(8), stage.SlotAddr(ours))
	c.If(stage.Jeq, ours, stage.Imm(0), &done)
	c.Try(stage.Discard, step, stage.Getcpu, stage.SlotAddr(cpu), stage.Imm(0), stage.Imm(0))
	for range 3 { // the size of a word
		c.Add(cpu, cpu, cpu)
	}
	c.Load64(others, cpu, allBut)
	c.And(others, others, ours)
	set(init, others) // having none is an error

	c.Move(all, stage.Imm(-1))
	set(self, all)
	c.Try(stage.Discard, step, stage.SchedGetaffinity, self, stage.Imm(8), stage.SlotAddr(widest))
	c.If(stage.Jne, widest, ours, &restricted)
	set(init, all)
	c.Jump(&done)
	c.Place(&restricted)
	set(self, ours)
	set(init, ours)
	c.Place(&done)
}

// allBut is a word for each CPU with the bits of all others.
var allBut = func() stage.Blob {
	words := make([]byte, 0, 8*maxApart)
	for i := range maxApart {
		words = binary.LittleEndian.AppendUint64(words, ^uint64(1<<i))
	}
	return stage.Blob(words)
}()
