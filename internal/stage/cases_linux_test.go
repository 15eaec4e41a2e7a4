package stage

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cases is the table of programs that run natively and, where that is
// possible, for the other architecture under an emulator.
func cases() []testCase {
	return slices.Concat(computeCases(), operandCases(), syscallCases(), forkCases(), sizeCases())
}

// edges holds the numbers at which comparisons and arithmetic go wrong. There
// are eight, so that their pairs' truth values fill one 64-bit word.
var edges = []int64{0, 1, -1, math.MinInt64, math.MaxInt64, math.MaxUint32, 1 << 31, 1 << 32}

// forms calls f with x and y as every mix of numbers and slots.
func forms(b *Builder, f func(load func(x, y int64) (Arg, Arg))) {
	sx, sy := b.Slot(), b.Slot()
	for form := range 4 {
		f(func(x, y int64) (Arg, Arg) {
			ax, ay := Arg(Imm(x)), Arg(Imm(y))
			if form&1 != 0 {
				b.Move(sx, ax)
				ax = sx
			}
			if form&2 != 0 {
				b.Move(sy, ay)
				ay = sy
			}
			return ax, ay
		})
	}
}

// compareCase writes, for every form of operand, one word whose bits say for
// which pairs of edges the jump was taken.
func compareCase(k Kind, holds func(x, y int64) bool) testCase {
	var bits int64
	for _, x := range edges {
		for _, y := range edges {
			bits <<= 1
			if holds(x, y) {
				bits |= 1
			}
		}
	}
	return testCase{
		name: k.String(),
		build: func(b *Builder) {
			acc := b.Slot()
			forms(b, func(load func(x, y int64) (Arg, Arg)) {
				for _, x := range edges {
					for _, y := range edges {
						var taken, next Label
						ax, ay := load(x, y)
						b.Add(acc, acc, acc)
						b.If(k, ax, ay, &taken)
						b.Jump(&next)
						b.Place(&taken)
						b.Add(acc, acc, Imm(1))
						b.Place(&next)
					}
				}
				dump(b, acc, 1)
			})
		},
		want: outcome{Stdout: strings.Repeat(words(bits), 4)},
	}
}

// arithmeticCase writes, for every form of operand, the results for all pairs.
func arithmeticCase(k Kind, ys []int64, f func(x, y int64) int64) testCase {
	var want []int64
	for _, x := range edges {
		for _, y := range ys {
			want = append(want, f(x, y))
		}
	}
	return testCase{
		name: k.String(),
		build: func(b *Builder) {
			results := b.Slots(len(want))
			forms(b, func(load func(x, y int64) (Arg, Arg)) {
				dst := results
				for _, x := range edges {
					for _, y := range ys {
						ax, ay := load(x, y)
						b.Emit(Op{Kind: k, Dst: dst, Args: []Arg{ax, ay}})
						dst++
					}
				}
				dump(b, results, len(want))
			})
		},
		want: outcome{Stdout: strings.Repeat(words(want...), 4)},
	}
}

func computeCases() []testCase {
	return []testCase{
		compareCase(Jeq, func(x, y int64) bool { return x == y }),
		compareCase(Jne, func(x, y int64) bool { return x != y }),
		compareCase(Jlt, func(x, y int64) bool { return x < y }),
		compareCase(Jset, func(x, y int64) bool { return x&y != 0 }),
		arithmeticCase(Add, edges, func(x, y int64) int64 { return x + y }),
		arithmeticCase(And, edges, func(x, y int64) int64 { return x & y }),
		arithmeticCase(Shr, []int64{0, 1, 31, 32, 63}, func(x, y int64) int64 { return int64(uint64(x) >> y) }),
		{
			name: "builder-arithmetic",
			build: func(b *Builder) {
				r := b.Slots(4)
				b.Move(r, Imm(-5))
				b.Add(r+1, r, Imm(7))
				b.And(r+2, r, Imm(0xff))
				b.Shr(r+3, r, Imm(60))
				dump(b, r, 4)
			},
			want: outcome{Stdout: words(-5, 2, 0xfb, 15)},
		},
		{
			name: "jmp",
			build: func(b *Builder) {
				var ahead, back Label
				r := b.Slot()
				b.Jump(&ahead)
				b.Place(&back)
				b.Add(r, r, Imm(1))
				dump(b, r, 1)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(4))
				b.Place(&ahead)
				b.Move(r, Imm(10))
				b.Jump(&back)
			},
			want: outcome{Stdout: words(11), Exit: 4},
		},
		{
			// What two places share goes back behind whichever of them failed,
			// and finds the operands there.
			name: "jump-to",
			build: func(b *Builder) {
				var shared, done Label
				r, back := b.Slots(2), b.Slot()
				for i := range int64(2) {
					b.SysOr(&shared, Discard, Step{"close", ""}, Close, Imm(-5-i))
					b.Move(r, Imm(99)) // passed over
				}
				b.Jump(&done)
				b.Place(&shared)
				b.Load64(r, FailedOp, Imm(8))
				dump(b, r, 1)
				b.Add(back, FailedOp, Imm(2*OpSize))
				b.JumpTo(back)
				b.Place(&done)
				b.Move(r, Imm(7))
				dump(b, r, 1)
			},
			want: outcome{Stdout: words(-5, -6, 7)},
		},
		{
			name: "ld32",
			build: func(b *Builder) {
				word := Blob("\x00\x01\x02\x03\x80\xff\xff\xff\xff\x7f")
				r, base, off := b.Slots(7), b.Slot(), b.Slot()
				for i := range 7 {
					b.Move(r+Slot(i), Imm(-1)) // a load must clear the upper half
				}
				b.Move(base, word)
				b.Move(off, Imm(5))
				b.Load32(r, word, Imm(0))
				b.Load32(r+1, word, Imm(1))
				b.Load32(r+2, base, off)
				b.Load32(r+3, word, off)
				b.Load32(r+4, At{word, 8}, Imm(-2))
				b.Load32(r+5, off, word) // the sum counts, not which operand is the base
				b.Load32(r+6, SlotAddr(off), Imm(0))
				dump(b, r, 7)
			},
			want: outcome{Stdout: words(0x03020100, 0x80030201, 0xffffffff, 0xffffffff, 0x7fffffff, 0xffffffff, 5)},
		},
		{
			name: "ld64",
			build: func(b *Builder) {
				r, base, off := b.Slots(5), b.Slot(), b.Slot()
				nested := Vec{Vec{Imm(math.MinInt64), Imm(7)}, Imm(-1)}
				b.Load64(r, Blob("\x01\x02\x03\x04\x05\x06\x07\x88"), Imm(0))
				b.Move(base, nested)
				b.Move(off, Imm(8))
				b.Load64(r+1, base, off)
				b.Load64(base, nested, Imm(0)) // overwrites its way to the inner vector
				b.Load64(r+2, base, Imm(0))
				b.Load64(r+3, base, off)
				b.Load64(r+4, SlotAddr(r), Imm(8))
				dump(b, r, 5)
			},
			want: outcome{Stdout: words(-0x77f8f9fafbfcfdff, -1, math.MinInt64, 7, -1)},
		},
		{
			name: "every-slot",
			build: func(b *Builder) {
				for s := firstFreeSlot; s < numSlots; s++ {
					b.Move(Slot(s), Imm(1000+s))
				}
				b.Move(Discard, Imm(-7))
				dump(b, 0, numSlots)
			},
			want: outcome{Stdout: everySlot(-7)},
		},
		unknownKind(byte(kinds)),
		unknownKind(16 + byte(Add)),
		unknownKind(255),
	}
}

// everySlot is a dump of all slots of which the free ones hold 1000 and their number.
func everySlot(discarded int64) string {
	w := make([]int64, numSlots)
	w[Discard] = discarded
	for s := firstFreeSlot; s < numSlots; s++ {
		w[s] = int64(1000 + s)
	}
	return words(w...)
}

func unknownKind(k byte) testCase {
	return testCase{
		name: fmt.Sprintf("unknown-kind-%d", k),
		build: func(b *Builder) {
			b.Sys(Step{"write", ""}, Write, Imm(1), Str("before"), Imm(6))
			b.Emit(Op{Kind: Add, Args: []Arg{Imm(0), Imm(0)}})
			b.Sys(Step{"write", ""}, Write, Imm(1), Str("after"), Imm(5))
		},
		patch: func(_ *Program, image []byte) { encodedOp(image, 1)[0] = k },
		want:  outcome{Stdout: "before"},
		trap:  true,
	}
}

// renumber makes the system calls whose step does this another call, one that
// [Call] has no name for.
func renumber(do string, number uint32) func(*Program, []byte) {
	return func(p *Program, image []byte) {
		for i, op := range p.Ops {
			if op.Step.Do == do {
				binary.LittleEndian.PutUint32(encodedOp(image, i)[4:], number)
			}
		}
	}
}

func operandCases() []testCase {
	const page = 64 << 10 // of every supported architecture
	return []testCase{
		{
			name: "addresses",
			build: func(b *Builder) {
				r := b.Slots(2)
				m := b.Mem(13)
				next := b.Mem(4)
				b.Move(r, Imm(0x1122334455667788))
				b.Sys(Step{"read", "first"}, Read, Imm(0), m, Imm(5))
				b.Sys(Step{"read", "second"}, Read, Imm(0), At{m, 8}, Imm(3))
				b.Sys(Step{"read", "slot"}, Read, Imm(0), At{SlotAddr(r), 8}, Imm(8))
				b.Sys(Step{"read", "next"}, Read, Imm(0), next, Imm(4))
				b.Sys(Step{"write", "vector"}, Writev, Imm(1), At{Vec{
					Imm(0), Imm(0),
					Str("string"), Imm(7), // with its NUL
					At{Str("string"), 3}, Imm(3),
					Blob("a\x00b"), Imm(3),
					At{Blob("blob"), 2}, Imm(2),
					Vec{Imm(-1), Imm(-2)}, Imm(16),
					SlotAddr(r), Imm(16),
					m, Imm(24), // next lies behind m, 8-byte aligned
					Str(""), Imm(1),
				}, 16}, Imm(8))
			},
			stdin: "12345" + "678" + "slot two" + "next",
			want: outcome{Stdout: "string\x00ing" + "a\x00b" + "ob" + words(-1, -2) +
				words(0x1122334455667788) + "slot two" +
				"12345\x00\x00\x00" + "678\x00\x00\x00\x00\x00" + "next\x00\x00\x00\x00" + "\x00"},
		},
		{
			name: "strings",
			build: func(b *Builder) {
				b.Sys(Step{"exec", "sh"}, Execve, Str("/bin/sh"),
					Strings([]string{"sh", "-c", `echo "$0|$1|$2|$#|$V"; exit 7`, "zero", "", "two words"}),
					Strings([]string{"V=value"}))
			},
			want: outcome{Stdout: "zero||two words|2|value\n", Exit: 7},
		},
		{
			name: "constants-are-read-only",
			build: func(b *Builder) {
				var failed Label
				r := b.Slots(3)
				b.Try(r, Step{"overwrite", "blob"}, Read, Imm(0), Blob("12345678"), Imm(8))
				b.SysOr(&failed, Discard, Step{"fail", ""}, Close, Imm(-1))
				b.Place(&failed)
				b.Try(r+1, Step{"overwrite", "operation"}, Read, Imm(0), FailedOp, Imm(8))
				b.Try(r+2, Step{"overwrite", "slots"}, Read, Imm(0), SlotAddr(b.Slot()), Imm(8))
				dump(b, r, 3)
			},
			stdin: "01234567",
			want:  outcome{Stdout: words(-int64(unix.EFAULT), -int64(unix.EFAULT), 8)},
		},
		{
			name: "memory-is-zeroed",
			build: func(b *Builder) {
				m := b.Mem(1 << 20)
				end := b.Mem(1)
				b.Sys(Step{"dump", "slots"}, Write, Imm(1), SlotAddr(firstFreeSlot), Imm(8*(numSlots-firstFreeSlot)))
				b.Sys(Step{"dump", "memory"}, Write, Imm(1), m, Imm(m.Size))
				b.Sys(Step{"read", ""}, Read, Imm(0), end, Imm(1))
				b.Sys(Step{"dump", "end"}, Write, Imm(1), end, Imm(8))
			},
			stdin: "x",
			want:  outcome{Stdout: strings.Repeat("\x00", 8*(numSlots-firstFreeSlot)+1<<20) + "x\x00\x00\x00\x00\x00\x00\x00"},
		},
		{
			// mmap is the call with six operands that all matter. It is made
			// with every mix of numbers and slots. The slots are picked so that
			// taking a slot's number for its value fails the call or the load,
			// and so does taking a small number for a slot.
			name: "every-mask",
			build: func(b *Builder) {
				slots := [6]Slot{200, 201, 208, 224, 202, 203}
				const results = 100
				for mask := range int64(64) {
					values := [6]int64{
						0x20000000 + mask<<20,
						2 * page,
						unix.PROT_READ,
						unix.MAP_PRIVATE | unix.MAP_FIXED,
						0,
						mask % 4 * page,
					}
					var args []Arg
					for i, v := range values {
						b.Move(slots[i], Imm(v))
						if mask>>i&1 != 0 {
							args = append(args, slots[i])
						} else {
							args = append(args, Imm(v))
						}
					}
					b.Move(Discard, Imm(-77))
					b.SysTo(99, Step{"mmap", fmt.Sprintf("with mask %#x", mask)}, Openat, args...)
					b.If(Jne, Slot(99), Imm(values[0]), &b.Fail)
					b.Load64(Slot(results+mask), Slot(99), Imm(page))
				}
				dump(b, results, 64)
			},
			patch: renumber("mmap", unix.SYS_MMAP),
			stdin: strings.Repeat("a", page) + strings.Repeat("b", page) + strings.Repeat("c", page) +
				strings.Repeat("d", page) + strings.Repeat("e", page),
			want: outcome{Stdout: strings.Repeat("bbbbbbbbccccccccddddddddeeeeeeee", 16)},
		},
	}
}

func syscallCases() []testCase {
	return []testCase{
		{
			name: "hello",
			build: func(b *Builder) {
				b.Sys(Step{"say hello", ""}, Write, Imm(1), Str("hello\n"), Imm(6))
			},
			want: outcome{Stdout: "hello\n"},
		},
		{
			// umask returns what the call before it set.
			name: "every-result-slot",
			build: func(b *Builder) {
				b.Sys(Step{"set umask", ""}, Umask, Imm(0o777))
				for s := firstFreeSlot; s < numSlots; s++ {
					b.SysTo(Slot(s), Step{"umask", ""}, Umask, Imm(s))
				}
				b.Sys(Step{"umask", ""}, Umask, Imm(0))
				dump(b, 0, numSlots)
			},
			want: outcome{Stdout: words(append([]int64{255, 0, 0, 0, 0o777}, count(4, 255)...)...)},
		},
		{
			name: "failing-op",
			build: func(b *Builder) {
				b.Sys(Step{"say hello", ""}, Write, Imm(1), Str("hello\n"), Imm(6))
				b.Sys(Step{"close", "descriptor -1"}, Close, Imm(-1))
				b.Sys(Step{"not reached", ""}, Write, Imm(1), Str("wrong\n"), Imm(6))
			},
			want: outcome{Stdout: "hello\n", Failed: "1: close descriptor -1: bad file descriptor", Exit: failedExit},
		},
		{
			name: "failing-first-op",
			build: func(b *Builder) {
				b.SysTo(b.Slot(), Step{"open", "/nonexistent"}, Openat, Imm(unix.AT_FDCWD), Str("/nonexistent"), Imm(0), Imm(0))
			},
			want: outcome{Failed: "0: open /nonexistent: no such file or directory", Exit: failedExit},
		},
		{
			name: "try",
			build: func(b *Builder) {
				var failed Label
				r := b.Slots(2)
				b.Try(r, Step{"close", ""}, Close, Imm(-1))
				b.Try(r+1, Step{"write", ""}, Write, Imm(1), Str("x"), Imm(1))
				dump(b, 0, int(r)+2)
				b.If(Jlt, r, Imm(0), &failed)
				b.Sys(Step{"not reached", ""}, ExitGroup, Imm(1))
				b.Place(&failed)
			},
			// A failure nobody jumps for is not recorded.
			want: outcome{Stdout: "x" + words(0, 0, 0, 0, -int64(unix.EBADF), 1)},
		},
		{
			name: "sys-or",
			build: func(b *Builder) {
				var first, second, third Label
				r, later := b.Slots(3), b.Slot()
				b.SysOr(&third, r, Step{"succeed", ""}, Write, Imm(1), Str("abc"), Imm(3))
				dump(b, 0, int(r)+3)
				b.SysOr(&first, r+1, Step{"close", ""}, Close, Imm(-1)) // operation 2
				b.Sys(Step{"not reached", ""}, ExitGroup, Imm(1))
				b.Place(&first)
				b.Add(later, FailedOp, Imm(4*OpSize))
				dump(b, FailedErrno, 1)
				b.SysOr(&second, Discard, Step{"chdir", ""}, Chdir, Str("/nonexistent")) // operation 6
				b.Sys(Step{"not reached", ""}, ExitGroup, Imm(2))
				b.Place(&second)
				b.If(Jne, FailedOp, later, &third)
				dump(b, FailedErrno, int(r)+3-int(FailedErrno))
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
				b.Place(&third)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(3))
			},
			want: outcome{Stdout: "abc" + words(0, 0, 0, 0, 3, 0, 0) +
				words(-int64(unix.EBADF)) +
				words(-int64(unix.ENOENT), 0, 3, -int64(unix.EBADF), 0)},
		},
		{
			// Seeking in /proc/PID/mem returns addresses up to the last one.
			name: "errors-are-the-last-4095-results",
			build: func(b *Builder) {
				var failed Label
				fd, r := b.Slot(), b.Slots(2)
				b.SysTo(fd, Step{"open", "memory"}, Openat, Imm(unix.AT_FDCWD), Str("/proc/self/mem"), Imm(0), Imm(0))
				b.SysTo(r, Step{"seek", ""}, Close, fd, Imm(-4096), Imm(0))
				b.SysOr(&failed, r+1, Step{"seek", ""}, Close, fd, Imm(-4095), Imm(0))
				b.Sys(Step{"not reached", ""}, ExitGroup, Imm(1))
				b.Place(&failed)
				dump(b, r, 2)
				dump(b, FailedErrno, 1)
			},
			patch: renumber("seek", unix.SYS_LSEEK),
			want:  outcome{Stdout: words(-4096, -4095, -4095)},
		},
		{
			name:  "self-report",
			build: selfReport,
			want:  outcome{Stdout: "hello: cannot open the door /nonexistent/door\n", Exit: 77},
		},
	}
}

// selfReport is a program that prints its own error, as the ones without a
// host to report to do.
func selfReport(b *Builder) {
	b.Texts = func(s Step) Text { return Text{"cannot " + s.Do + " ", s.On, "\n"} }
	for range 5 {
		b.Sys(Step{"say", "nothing"}, Write, Imm(1), Str(""), Imm(0))
	}
	b.Sys(Step{"say", "hello"}, Write, Imm(1), Str("hello: "), Imm(7))
	b.Try(Discard, Step{"fail", "unnoticed"}, Close, Imm(-1))
	b.Sys(Step{"open the door", "/nonexistent/door"}, Openat, Imm(unix.AT_FDCWD), Str("/nonexistent/door"), Imm(0), Imm(0))
	b.Sys(Step{"enter", "/"}, Chdir, Str("/"))

	b.Place(&b.Fail)
	row, iov := b.Slot(), b.Slots(6)
	b.Shr(row, FailedOp, Imm(4))
	b.Load32(row, row, OpTable{})
	for i := range 6 {
		b.Load32(iov+Slot(i), row, Imm(4*i))
	}
	b.Try(Discard, Step{"print", ""}, Writev, Imm(1), SlotAddr(iov), Imm(3))
	b.Try(Discard, Step{"exit", ""}, ExitGroup, Imm(77))
}

const (
	forkFlags  = int64(unix.SIGCHLD)
	vforkFlags = unix.CLONE_VM | unix.CLONE_VFORK | int64(unix.SIGCHLD)

	noSharing = "user-mode emulation makes a vfork a fork, and refuses CLONE_VM without CLONE_THREAD"
)

// wait waits for a child and goes to b.Fail unless it exited with this status.
func wait(b *Builder, pid Slot, exit int64) {
	m, status := b.Mem(8), b.Slot()
	b.Sys(Step{"wait", ""}, Wait4, pid, m, Imm(0), Imm(0))
	b.Load32(status, m, Imm(0))
	b.If(Jne, status, Imm(exit<<8), &b.Fail)
}

// forkCase writes what the child saw and did in slots: in the child if that has
// its own memory, and always in the parent.
func forkCase(name string, flags int64, childWrites bool, want, notEmulated string) testCase {
	return testCase{
		name: name,
		build: func(b *Builder) {
			var child Label
			pid, seen, done := b.Slot(), b.Slots(2), b.Slot()
			b.Move(pid, Imm(111))
			b.Move(Discard, Imm(222))
			b.Fork(pid, Step{"fork", ""}, flags, &child)
			wait(b, pid, 5)
			dump(b, seen, 3)
			b.If(Jlt, pid, Imm(2), &b.Fail) // it is the child's PID, not what was there
			b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))

			b.Place(&child)
			b.Move(seen, pid)
			b.Move(seen+1, Discard)
			b.Move(done, Imm(42))
			if childWrites {
				dump(b, seen, 3)
			}
			b.Sys(Step{"exit", ""}, ExitGroup, Imm(5))
		},
		want:        outcome{Stdout: want},
		notEmulated: notEmulated,
	}
}

func forkCases() []testCase {
	return []testCase{
		forkCase("fork", forkFlags, true, words(111, 222, 42)+words(0, 0, 0), ""),
		forkCase("fork-sharing-memory", vforkFlags, false, words(111, 222, 42), noSharing),
		{
			name: "fork-discarding-pid",
			build: func(b *Builder) {
				var child Label
				seen := b.Slot()
				b.Move(Discard, Imm(333))
				b.Fork(Discard, Step{"fork", ""}, vforkFlags, &child)
				dump(b, seen, 1)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
				b.Place(&child)
				b.Move(seen, Discard)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
			},
			want:        outcome{Stdout: words(333)},
			notEmulated: noSharing,
		},
		{
			name: "fork-and-exec",
			build: func(b *Builder) {
				var child Label
				pid := b.Slot()
				b.Fork(pid, Step{"fork", ""}, vforkFlags, &child)
				wait(b, pid, 6)
				b.Sys(Step{"say", ""}, Write, Imm(1), Str("parent\n"), Imm(7))
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
				b.Place(&child)
				b.Sys(Step{"exec", ""}, Execve, Str("/bin/sh"), Strings([]string{"sh", "-c", "echo child; exit 6"}), Strings(nil))
			},
			want: outcome{Stdout: "child\nparent\n"},
		},
		{
			name: "failing-fork",
			build: func(b *Builder) {
				var child Label
				pid := b.Slot()
				b.Move(pid, Imm(111))
				// The kernel refuses to share what it is to unshare.
				b.Fork(pid, Step{"fork", "sharing too much"}, unix.CLONE_NEWNS|unix.CLONE_FS, &child)
				b.Place(&child)
				b.Sys(Step{"not reached", ""}, ExitGroup, Imm(1))
			},
			want: outcome{Failed: "1: fork sharing too much: invalid argument", Exit: failedExit},
		},
		{
			name: "failure-in-child",
			build: func(b *Builder) {
				var child, failed Label
				pid := b.Slot()
				b.Fork(pid, Step{"fork", ""}, vforkFlags, &child) // operation 0
				wait(b, pid, 8)
				b.Jump(&b.Fail) // reports what the child left in the shared slots
				b.Place(&child)
				b.SysOr(&failed, Discard, Step{"exec", "/nonexistent"}, Execve, Str("/nonexistent"), Strings(nil), Strings(nil))
				b.Place(&failed)
				b.Sys(Step{"exit", ""}, ExitGroup, Imm(8))
			},
			want:        outcome{Failed: "5: exec /nonexistent: no such file or directory", Exit: failedExit},
			notEmulated: noSharing,
		},
	}
}

func count(from, to int64) (n []int64) {
	for i := from; i < to; i++ {
		n = append(n, i)
	}
	return n
}

func sizeCases() []testCase {
	return []testCase{
		{
			name: "ten-thousand-ops",
			build: func(b *Builder) {
				sum := b.Slot()
				for i := range 9_998 {
					b.Add(sum, sum, Imm(i))
				}
				dump(b, sum, 1)
				b.Sys(Step{"fail", "at last"}, Close, Imm(-1))
			},
			want: outcome{
				Stdout: words(9_998 * 9_997 / 2),
				Failed: "9999: fail at last: bad file descriptor",
				Exit:   failedExit,
			},
		},
		largeImage("image-over-64-KiB", 70_000),
		largeImage("image-over-2-MiB", 3<<20),
	}
}

// largeImage has n bytes of constants, and slots and memory behind them.
func largeImage(name string, n int) testCase {
	big := strings.Repeat("0123456789abcde\n", n/16)
	return testCase{
		name: name,
		build: func(b *Builder) {
			m := b.Mem(8)
			r := b.Slot()
			b.Sys(Step{"write", "blob"}, Write, Imm(1), Blob(big), Imm(len(big)))
			b.Sys(Step{"read", ""}, Read, Imm(0), m, Imm(8))
			b.Load64(r, m, Imm(0))
			dump(b, r, 1)
			b.Sys(Step{"write", "end"}, Write, Imm(1), At{Str(big), len(big) - 4}, Imm(5))
		},
		stdin: "12345678",
		want:  outcome{Stdout: big + "12345678" + "cde\n\x00"},
	}
}
