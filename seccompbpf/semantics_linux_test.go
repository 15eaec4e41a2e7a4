package seccompbpf

import (
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Check and Verdict claim to say what the kernel would. Here the kernel is asked.

func TestCheckAgreesWithKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ret := Insn{Code: opRet, K: uint32(Allow)}
	var filters []Filter
	for code := range uint16(0x100) { // each instruction there could be
		for _, k := range []uint32{0, 1, 2, 4, 15, 16, 31, 32, 60, 64, 0xffffffff} {
			filters = append(filters, Filter{{Code: opStore, K: 4}, {Code: code, K: k}, ret})
		}
	}
	for range 3000 {
		filters = append(filters, randomProgram(r))
	}
	filters = append(filters,
		Filter{{Code: 0x106}}, Filter{{Code: opLoad}}, Filter{ret}, Filter{{Code: opRetA}},
		Filter{{Code: opJeq, Jt: 255, Jf: 255}, ret}, Filter{{Code: opRet | srcX}},
		make(Filter, MaxInsns+1),
		compile(t, Baseline()), compile(t, Hardened()),
	)
	for i := range filters[len(filters)-3] {
		filters[len(filters)-3][i] = ret
	}

	cmd := child("check")
	cmd.Stderr = os.Stderr
	var accepted []bool
	exchange(t, cmd, filters, &accepted)
	yes := 0
	for i, f := range filters {
		if accepted[i] {
			yes++
		}
		if err := f.Check(); (err == nil) != accepted[i] {
			t.Errorf("kernel accepts: %v, Check: %v\n%.2000s", accepted[i], err, f)
		}
	}
	if yes < 500 || yes > len(filters)-500 {
		t.Errorf("the kernel accepted %d of %d filters; the test sees too little of one kind", yes, len(filters))
	}
}

// childCheck asks the kernel about filters without one ever coming into force: to set a filter for
// all threads fails, after all checks, while another thread has one that this thread does not.
func childCheck() error {
	var filters []Filter
	if err := gob.NewDecoder(os.Stdin).Decode(&filters); err != nil {
		return err
	}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		_, err := install(Filter{{Code: opRet, K: uint32(Allow)}}, 0)
		ready <- err
		select {}
	}()
	if err := <-ready; err != nil {
		return err
	}
	runtime.LockOSThread()
	accepted := make([]bool, len(filters))
	for i, f := range filters {
		switch tid, err := install(f, unix.SECCOMP_FILTER_FLAG_TSYNC); {
		case err == nil && tid != 0:
			accepted[i] = true
		case !errors.Is(err, unix.EINVAL):
			return fmt.Errorf("filter %d: thread %d, %v", i, tid, err)
		}
	}
	return gob.NewEncoder(os.Stdout).Encode(accepted)
}

// A trial is a filter that gives getppid an errno, and the arguments to call it with.
type trial struct {
	Filter Filter
	Args   [6]uint64
}

func TestVerdictAgreesWithKernel(t *testing.T) {
	abi := must(ForArch(runtime.GOARCH))
	r := rand.New(rand.NewPCG(5, 6))
	var trials []trial
	var want []int
	for len(trials) < 400 {
		c := trial{Filter: errnoProgram(r)}
		for i := range c.Args {
			c.Args[i] = r.Uint64() >> r.IntN(64)
		}
		d := Data{Nr: unix.SYS_GETPPID, Arch: abi.AuditArch(), Args: c.Args}
		if n, ok := c.Filter.Verdict(d).Errno(); ok && n > 0 && c.Filter.Check() == nil {
			trials = append(trials, c)
			want = append(want, int(n))
		}
	}
	cmd := child("run")
	cmd.Stderr = os.Stderr
	var got []int
	exchange(t, cmd, trials, &got)
	distinct := make(map[int]bool)
	for i := range trials {
		distinct[want[i]] = true
		if got[i] != want[i] {
			t.Errorf("kernel: errno %d, Verdict: %d, args %#x\n%s", got[i], want[i], trials[i].Args, trials[i].Filter)
		}
	}
	if len(distinct) < 100 {
		t.Errorf("only %d distinct results", len(distinct))
	}
}

func childRun() error {
	var trials []trial
	if err := gob.NewDecoder(os.Stdin).Decode(&trials); err != nil {
		return err
	}
	errnos := make([]int, len(trials))
	for i, c := range trials {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never undone: the thread ends here and its filter with it
			_, err := install(c.Filter, 0)
			if err == nil {
				a := c.Args
				_, _, errno := unix.RawSyscall6(unix.SYS_GETPPID, uintptr(a[0]), uintptr(a[1]),
					uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
				errnos[i] = int(errno)
			}
			done <- err
		}()
		if err := <-done; err != nil {
			return fmt.Errorf("filter %d: %w", i, err)
		}
	}
	return gob.NewEncoder(os.Stdout).Encode(errnos)
}

// errnoProgram computes something from the arguments of getppid and returns 11 bits of it as errno.
func errnoProgram(r *rand.Rand) Filter {
	f := Filter{
		{Code: opLoad, K: offNr},
		{Code: opJeq, K: unix.SYS_GETPPID, Jt: 1},
		{Code: opRet, K: uint32(Allow)},
		{Code: opLoad, K: offArgs + 4*r.Uint32N(12)},
		{Code: opTax},
	}
	for cell := range uint32(memWords) {
		f = append(f, Insn{Code: []uint16{opStore, opStoreX}[r.IntN(2)], K: cell})
	}
	body := 4 + r.IntN(30)
	for i := range body {
		in := randomInsn(r, min(body-i-1, 255))
		switch {
		case in.Code == opLoad:
			in.K = offArgs + 4*r.Uint32N(12) // the instruction pointer is anyone's guess
		case in.Code == opRet || in.Code == opRetA:
			in = Insn{Code: opAdd, K: r.Uint32()}
		}
		f = append(f, in)
	}
	return append(f,
		Insn{Code: opRsh, K: []uint32{0, 11, 21}[r.IntN(3)]},
		Insn{Code: opAnd, K: 0x7ff},
		Insn{Code: opOr, K: uint32(actionErrno)},
		Insn{Code: opRetA})
}

// randomProgram makes programs of which the kernel accepts some and refuses some.
func randomProgram(r *rand.Rand) Filter {
	n := 1 + r.IntN(20)
	var f Filter
	for i := range n {
		in := randomInsn(r, n-i)
		if r.IntN(40) == 0 {
			in.K = r.Uint32() >> r.IntN(32)
		}
		if r.IntN(60) == 0 {
			in.Code = uint16(r.Uint32() >> r.IntN(32))
		}
		f = append(f, in)
	}
	if r.IntN(10) > 0 {
		f = append(f, Insn{Code: []uint16{opRet, opRetA}[r.IntN(2)], K: r.Uint32()})
	}
	return f
}

// randomInsn makes an instruction whose jumps skip at most skip others.
func randomInsn(r *rand.Rand, skip int) Insn {
	codes := allCodes()
	in := Insn{Code: codes[r.IntN(len(codes))], K: r.Uint32() >> r.IntN(32)}
	switch {
	case in.Code == opLoad:
		in.K = 4 * r.Uint32N(dataSize/4)
	case in.Code == opJa:
		in.K = uint32(r.IntN(skip + 1))
	case in.Code&classMask == classJmp:
		in.Jt, in.Jf = uint8(r.IntN(skip+1)), uint8(r.IntN(skip+1))
	case in.Code == opLsh || in.Code == opRsh:
		in.K %= 32
	case in.Code == opDiv:
		in.K |= 1
	case in.Code == opLoadMem, in.Code == opLoadXMem, in.Code == opStore, in.Code == opStoreX:
		in.K %= memWords
	}
	return in
}

// allCodes is in a fixed order, so that a seed gives the same programs every time.
func allCodes() []uint16 {
	var codes []uint16
	for code := range uint16(0x100) {
		if opName(code) != "" {
			codes = append(codes, code)
		}
	}
	return codes
}
