package seccompbpf

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// Every denial, made for real: the kernel must give the error that the policy names, on every ABI
// that this machine can enter.
func TestKernelDeniesWhatThePolicyDenies(t *testing.T) {
	// A kernel without x32 has ENOSYS too. This one tells its answer from the filter's.
	unlisted := Hardened()
	unlisted.Name, unlisted.Unlisted = "unlisted", Errno(uint16(unix.EHWPOISON))
	for _, p := range []Policy{Baseline(), Hardened(), unlisted} {
		f := compileFor(t, p, runtime.GOARCH)
		for _, way := range waysIn(t) {
			t.Run(p.Name+"/"+way.name, func(t *testing.T) {
				var calls []string
				var want []Action
				for _, d := range denials(t, p, way.abi) {
					if _, ok := f.Verdict(d).Errno(); !ok {
						t.Fatalf("%+v is no denial and must not be made: %v", d, f.Verdict(d))
					}
					calls = append(calls, way.prefix+callText(d))
					want = append(want, f.Verdict(d))
				}
				if len(calls) < 40 {
					t.Fatalf("only %d calls to make", len(calls))
				}
				got := probe(t, under(t, f, 0, append([]string{way.program}, calls...)...))
				for i, errno := range got {
					if n, _ := want[i].Errno(); errno != int(n) {
						t.Errorf("call %s: errno %d, want %v", calls[i], errno, want[i])
					}
				}
			})
		}
	}
}

type wayIn struct {
	name    string
	abi     ABI
	program string
	prefix  string
}

// waysIn lists how a program on this machine can make syscalls. x32 is among them on a kernel
// without x32 too, as filters come before the kernel looks whether it has such a call.
func waysIn(t *testing.T) []wayIn {
	abi, err := ForArch(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	native := buildProbe(t, runtime.GOARCH)
	ways := []wayIn{{"native", abi, native, ""}}
	if runtime.GOARCH == "amd64" {
		ways = append(ways,
			wayIn{"x32", X32, native, ""},
			wayIn{"int80", I386, native, "int80:"},
			wayIn{"x86 program", I386, buildProbe(t, "386"), ""},
		)
	}
	return ways
}

func buildProbe(t *testing.T, goarch string) string {
	t.Helper()
	testutil.RequireTool(t, "go")
	bin := filepath.Join(t.TempDir(), "probe-"+goarch)
	build := exec.Command("go", "build", "-o", bin, "./testdata/probe")
	build.Env = append(os.Environ(), "GOARCH="+goarch, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// denials returns a call for each rule that denies without a condition, and the cases of
// the tables for those with one.
func denials(t *testing.T, p Policy, abi ABI) []Data {
	var calls []Data
	for _, r := range p.Rules {
		if len(r.When) == 0 && has(abi, r.Syscall) {
			calls = append(calls, on(t, abi, r.Syscall))
		}
	}
	for _, c := range hardenedCases {
		if has(abi, c.syscall) {
			if d := on(t, abi, c.syscall, c.args...); !p.Evaluate(d).permits() {
				calls = append(calls, d)
			}
		}
	}
	return calls
}

func callText(d Data) string {
	s := fmt.Sprint(d.Nr)
	for _, arg := range d.Args {
		if _, _, ok := Identify(d.Arch, d.Nr); ok && d.Arch == auditI386 {
			arg = uint64(uint32(arg)) // registers have no more
		}
		s += fmt.Sprintf(":%#x", arg)
	}
	return s
}

func probe(t *testing.T, cmd *exec.Cmd) []int {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	var errnos []int
	for _, line := range strings.Fields(string(out)) {
		errnos = append(errnos, must(strconv.Atoi(line)))
	}
	return errnos
}

// Calls that succeed without the filter and fail with it, so that the filter and nothing
// else is what denies them.
func TestKernelNegativeControl(t *testing.T) {
	f := HardenedFilter()
	program := buildProbe(t, runtime.GOARCH)
	abi := must(ForArch(runtime.GOARCH))
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		syscall string
		args    string
		want    int
	}{
		{"unshare", "0", 1},
		{"personality", "0x20000", 1},
		{"personality", "0xffffffff", 0},
		{"socket", "1:1:0", 0},
		{"socket", "16:3:0", 0},
		{"socket", "16:3:16", 93}, // NETLINK_GENERIC
		{"fchmodat", "-100:@" + file + ":04700", 1},
		{"fchmodat", "-100:@" + file + ":0700", 0},
		{"openat", "-100:@" + filepath.Join(dir, "a") + ":0101:04700", 1},
		{"openat", "-100:@" + filepath.Join(dir, "b") + ":0101:0700", 0},
		{"openat", "-100:@" + file + ":0:04700", 0},
		{"mknodat", "-100:@" + filepath.Join(dir, "fifo") + ":010600:0", 0},
	} {
		nr, ok := abi.Number(c.syscall)
		if !ok {
			t.Fatalf("%s has no %s", abi, c.syscall)
		}
		call := fmt.Sprintf("%d:%s", nr, strings.ReplaceAll(c.args, "-100", "0xffffffffffffff9c"))
		if got := probe(t, under(t, f, 0, program, call)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s(%s): errno %v, want %d", c.syscall, c.args, got, c.want)
		}
		os.Remove(filepath.Join(dir, "b"))
		os.Remove(filepath.Join(dir, "fifo"))
		if got := probe(t, exec.Command(program, "-unfiltered", call)); len(got) != 1 || got[0] != 0 {
			t.Errorf("%s(%s) fails without a filter too: errno %v", c.syscall, c.args, got)
		}
	}
}

// Logging is the one thing that may differ when denials are to be found out about.
func TestKernelLogFlagWeakensNothing(t *testing.T) {
	f := HardenedFilter()
	program := buildProbe(t, runtime.GOARCH)
	abi := must(ForArch(runtime.GOARCH))
	d := on(t, abi, "unshare")
	got := probe(t, under(t, f, unix.SECCOMP_FILTER_FLAG_LOG, program, callText(d)))
	if len(got) != 1 || got[0] != 1 {
		t.Errorf("unshare: errno %v, want 1", got)
	}
}
