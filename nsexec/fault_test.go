//go:build linux

package nsexec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// mayFail lists the steps of the hardened launch that may fail although they
// are made, and why the wall is whole nevertheless.
var mayFail = map[string]string{
	mounts.DoClose:                        "the descriptor is close-on-exec and nothing but the launch itself could use it",
	mounts.DoMkdir:                        "whether the directory exists is found out by opening it",
	mounts.DoCreate:                       "whether the file exists is found out by opening it",
	"keep the namespaces":                 "the host would see the end of the socket with the keeper's, a moment later",
	nsexec.DoClose:                        "of those that may fail: the guest's streams would stay open until its init ends",
	"let the init go on beside the stage": "where the init runs has no part in the wall, and it may use no CPU that the host may not",
	nsexec.DoUmask:                        "umask cannot fail; the program's own has no part in the wall",
	"report to the host":                  "the host that cannot be told is gone, which ends the guest by the lifeline",
	"report the command's end":            "the status goes the way of wait as well",
	"wait for events":                     "it is made again",
	"reap":                                "it is made again at the next child's end",
	"execute":                             "it is tried along PATH and what was found out is the exit status",
	"say why the command did not start":   "the exit status says it too",
}

// cannotFail says why an operation is left alone: without it the launch would
// neither go on nor end.
func cannotFail(op stage.Op) (why string) {
	switch {
	case op.OnErr != nil:
		return ""
	case op.Step.Do == "report to the host":
		return "a short write to an empty socket whose other end is open"
	case op.Call == stage.Ppoll:
		return "it is made again until it succeeds, with valid arguments"
	case op.Step.Do == "reap":
		return "there is a child to wait for"
	}
	return ""
}

// afterStart lists the steps made once the command runs, whose failure ends the
// guest or what was already going to end.
var afterStart = map[string]bool{
	"read a signal": true, "exit with the command's status": true,
}

// unsaid is the step whose failure ends the launch without a word: it is how
// the init learns that there is no host to talk to.
const unsaid = "wait for the host"

// shared are the objects of operations that all binds share, and which
// therefore have no path.
var shared = map[string]bool{"a mount point": true, "an existing mount point": true}

// TestFaultAtEveryStep makes each operation of the hardened launch fail in
// turn. The launch must fail and name that step, the command must not have
// run, and nothing may be left.
//
// An operation whose failure does not fail the launch is swapped for an exit:
// if that goes unnoticed too, it is not made on this machine at all.
// Otherwise it must be in one of the lists above.
func TestFaultAtEveryStep(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		prog, err := nsexec.Compile(hardened(t, "/bin/echo", "ran"))
		if err != nil {
			t.Fatal(err)
		}
		var failed, notMade, tolerated int
		for i, op := range prog.Ops {
			if op.Kind != stage.Sys && op.Kind != stage.Fork || cannotFail(op) != "" {
				continue
			}
			name := fmt.Sprintf("operation %d, %s: %s", i, op.Call, op.Step)
			fault := func(p *stage.Program) {
				p.Ops[i] = stage.Op{Kind: stage.Sys, Dst: op.Dst, Call: stage.Close, Args: []stage.Arg{stage.Imm(-1)}, OnErr: op.OnErr, Step: op.Step}
			}
			out, err := runAltered(t, name, fault)
			var se *nsexec.StartError
			switch {
			case errors.As(err, &se):
				failed++
				named := se.Step == op.Step.Do && se.On == op.Step.On
				if shared[op.Step.On] { // speaks for the bind that came to it
					named = strings.HasPrefix(se.On, "/") && (se.Step == mounts.DoCreate || se.Step == mounts.DoAttach)
				}
				if !named || se.Errno != unix.EBADF {
					t.Errorf("%s: error %v", name, err)
				}
				if out != "" {
					t.Errorf("%s: the command ran and wrote %q", name, out)
				}
				if op.OnErr == nil {
					t.Errorf("%s: may fail by the program, yet failed the launch", name)
				}
			case errors.Is(err, nsexec.ErrKilled) && op.Step.Do == unsaid && out == "":
				failed++
			case err != nil:
				t.Errorf("%s: error %v, which names no step", name, err)
			default:
				exit := func(p *stage.Program) {
					p.Ops[i] = stage.Op{Kind: stage.Sys, Call: stage.ExitGroup, Args: []stage.Arg{stage.Imm(97)}, Step: op.Step}
				}
				switch out, err := runAltered(t, name, exit); {
				case err == nil && out == "ran\n[0]":
					notMade++
				case op.OnErr == nil && mayFail[op.Step.Do] != "", afterStart[op.Step.Do]:
					tolerated++
				default:
					t.Errorf("%s: its failure goes unnoticed (%v, %q)", name, err, out)
				}
			}
		}
		t.Logf("%d operations failed the launch, %d are not made here, %d may fail", failed, notMade, tolerated)
		if failed < 100 {
			t.Errorf("only %d operations failed the launch: the test does not do what it says", failed)
		}
	})
}

// runAltered launches the hardened guest with an altered program. It returns
// what the command wrote and, if the launch succeeded, the exit code.
func runAltered(t *testing.T, name string, alter func(*stage.Program)) (out string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := hardened(t, "/bin/echo", "ran")
	s.Stdout = w
	leak := &recorder{TB: t}
	hung := time.AfterFunc(time.Minute, func() { panic(name + ": the launch hangs") })
	defer hung.Stop()
	testutil.NoLeak(leak, func() {
		var p *nsexec.Process
		p, err = nsexec.StartAltered(s, alter)
		if err == nil {
			st, _ := p.Wait(context.Background())
			out = fmt.Sprintf("[%d]", st.ExitCode)
		}
	})
	for _, l := range leak.errors {
		t.Errorf("%s: %s", name, l)
	}
	w.Close()
	b, _ := io.ReadAll(r)
	return string(b) + out, err
}

// A recorder keeps errors to say later what they are about.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Helper() {}

// The same for errnos with a meaning to the program, which must not take them
// for something harmless where it does not expect them.
func TestFaultsThatLookHarmless(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		prog, err := nsexec.Compile(hardened(t, "/bin/echo", "ran"))
		if err != nil {
			t.Fatal(err)
		}
		// Operations that fail with ENOENT, as the source of an optional bind
		// does, and with EEXIST, as a directory does that is there already.
		enoent := stage.Op{Call: stage.Unlinkat, Args: []stage.Arg{stage.Imm(unix.AT_FDCWD), stage.Str(""), stage.Imm(0)}}
		eexist := stage.Op{Call: stage.Mkdirat, Args: []stage.Arg{stage.Imm(unix.AT_FDCWD), stage.Str("/"), stage.Imm(0)}}
		optional := map[string]bool{}
		for _, op := range hardened(t, "true").Mounts.Ops {
			if b, ok := op.(mounts.Bind); ok && b.Optional {
				optional[mounts.DoSource+" "+b.Source] = true
			}
		}
		for i, op := range prog.Ops {
			if op.Kind != stage.Sys || op.OnErr == nil || op.Step.Do == mounts.DoMask || optional[op.Step.String()] || afterStart[op.Step.Do] {
				continue
			}
			for _, swap := range []stage.Op{enoent, eexist} {
				name := fmt.Sprintf("operation %d, %s: %s, with %s", i, op.Call, op.Step, swap.Call)
				swap.Kind, swap.Dst, swap.OnErr, swap.Step = stage.Sys, op.Dst, op.OnErr, op.Step
				out, err := runAltered(t, name, func(p *stage.Program) { p.Ops[i] = swap })
				if err == nil && strings.HasPrefix(out, "ran") && op.Step.Do != "exit" {
					if out, err := runAltered(t, name, func(p *stage.Program) {
						p.Ops[i] = stage.Op{Kind: stage.Sys, Call: stage.ExitGroup, Args: []stage.Arg{stage.Imm(97)}, Step: op.Step}
					}); err != nil || out != "ran\n[0]" {
						t.Errorf("%s: its failure goes unnoticed", name)
					}
				}
			}
		}
	})
}
