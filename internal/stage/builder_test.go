package stage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSlotsRunOut(t *testing.T) {
	var b Builder
	seen := map[Slot]bool{Discard: true, FailedOp: true, FailedErrno: true}
	for range numSlots - firstFreeSlot {
		s := b.Slot()
		if seen[s] {
			t.Fatalf("%s was handed out twice", s)
		}
		seen[s] = true
	}
	defer func() {
		if recover() == nil {
			t.Error("one slot too many was handed out")
		}
	}()
	b.Slot()
}

func TestNeighbouringSlotsRunOut(t *testing.T) {
	var b Builder
	if first, next := b.Slots(numSlots-firstFreeSlot-1), b.Slot(); first != firstFreeSlot || next != numSlots-1 {
		t.Errorf("got %s and %s", first, next)
	}
	b = Builder{}
	defer func() {
		if recover() == nil {
			t.Error("one slot too many was handed out")
		}
	}()
	b.Slots(numSlots - firstFreeSlot + 1)
}

// sample is a small program with most kinds of operation.
func sample(host string) *Program {
	var b Builder
	var child, running Label
	m := b.Mem(8)
	pid := b.Slot()
	b.Sys(Step{"set the host name", ""}, Sethostname, Str(host), Imm(len(host)))
	b.Fork(pid, Step{"start the init", ""}, 17, &child)
	b.Sys(Step{"wait", ""}, Wait4, pid, m, Imm(0), Imm(0))
	b.If(Jlt, pid, Imm(0), &running)
	b.Place(&running)
	b.Place(&child)
	b.Place(&b.Fail)
	b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
	return b.Program()
}

// Programs are compared by their operations.
func TestProgramsCompare(t *testing.T) {
	opts := cmp.AllowUnexported(Label{})
	p := sample("postern")
	if diff := cmp.Diff(p.Ops, sample("postern").Ops, opts); diff != "" {
		t.Errorf("the same program differs: %s", diff)
	}
	if cmp.Equal(p.Ops, sample("other").Ops, opts) {
		t.Error("programs with other operands are equal")
	}
	moved := sample("postern")
	moved.Ops[1].Target.index--
	if cmp.Equal(p.Ops, moved.Ops, opts) {
		t.Error("programs with other targets are equal")
	}
	kind := sample("postern")
	kind.Ops[3].Kind = Jne
	if cmp.Equal(p.Ops, kind.Ops, opts) {
		t.Error("programs with other kinds are equal")
	}
}
