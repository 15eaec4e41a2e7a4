package stage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListing(t *testing.T) {
	var b Builder
	var child, again, failed, nowhere Label
	pid, r := b.Slot(), b.Slots(2)
	m := b.Mem(24)
	b.Place(&again)
	b.SysTo(r, Step{"open", "/usr"}, Openat, Imm(-100), Str("/usr\n"), Imm(0x280000), Imm(4096))
	b.Sys(Step{Do: "read"}, Read, r, At{m, 8}, Imm(16))
	b.Try(r+1, Step{Do: "write"}, Writev, FD(1), Vec{Str("a"), Imm(1), Vec{Blob("\x01\x02")}, SlotAddr(r)}, Imm(2))
	b.SysOr(&failed, Discard, Step{Do: "write"}, Write, FD(1), Str(strings.Repeat("x", 97)), Blob(strings.Repeat("y", 17)))
	b.Fork(pid, Step{Do: "fork"}, 0x4111, &child)
	b.Place(&failed)
	b.Jump(&again)
	b.Place(&child)
	b.If(Jeq, r, Imm(0), &again)
	b.If(Jne, Imm(1), r, &again)
	b.If(Jlt, r, r+1, &again)
	b.If(Jset, r, Imm(4097), &child)
	b.Move(r, OpTable{})
	b.Add(r, r, At{Str("x"), 1})
	b.And(r, r, Imm(255))
	b.Shr(r, r, Imm(8))
	b.Load32(r, m, r)
	b.Load64(r, SlotAddr(r), Imm(8))
	b.Jump(&nowhere)
	b.Emit(Op{Kind: Jmp})
	b.JumpTo(r)
	b.Place(&b.Fail)
	b.Sys(Step{Do: "exit"}, ExitGroup, Imm(0))
	const want = `
   0  r5 = openat(-100, "/usr\n", 0x280000, 4096)  "open /usr" else 19
   1  read(r5, mem[0:24]+8, 16)  "read" else 19
   2  r6 = writev(1, ["a" 1 [{0102}] &r5], 2)  "write"
   3  write(1, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"… 97 bytes, {79797979797979797979797979797979… 17 bytes})  "write" else 5
   4  r4 = clone(0x4111, 0, 0, 0, 0) child at 6  "fork" else 19
   5  goto 0
   6  if r5 == 0 goto 0
   7  if 1 != r5 goto 0
   8  if r5 < r6 goto 0
   9  if r5 & 0x1001 goto 6
  10  r5 = texts + 0
  11  r5 = r5 + "x"+1
  12  r5 = r5 & 255
  13  r5 = r5 >> 8
  14  r5 = ld32[mem[0:24] + r5]
  15  r5 = ld64[&r5 + 8]
  16  goto nowhere
  17  goto nowhere
  18  goto [r5]
  19  exit_group(0)  "exit" else 19
`
	got := "\n" + b.Program().String()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Sys.String():                 "sys",
		Ld64.String():                "ld64",
		Kind(99).String():            "kind(99)",
		AMD64.String():               "amd64",
		ARM64.String():               "arm64",
		Arch(7).String():             "arch(7)",
		calls.String():               "call?",
		Slot(255).String():           "r255",
		Step{Do: "mount"}.String():   "mount",
		Step{"mount", "/p"}.String(): "mount /p",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
