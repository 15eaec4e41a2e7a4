//go:build linux

package nsexec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

func template(t *testing.T, s *nsexec.Spec) *nsexec.Template {
	t.Helper()
	tmpl, err := nsexec.NewTemplate(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tmpl.Close() })
	return tmpl
}

// An outcome is what a guest wrote and how it ended.
type outcome struct {
	Out    string
	Status nsexec.Status
	Err    string
}

// follow returns the outcome of a launch that writes to standard output and
// standard error.
func follow(t *testing.T, start func(out *os.File) (*nsexec.Process, error)) outcome {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := start(w)
	w.Close()
	if err != nil {
		return outcome{Err: err.Error()}
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return outcome{Out: string(b), Status: st}
}

// A launch from a template comes to the same as one that is compiled for the
// command, whatever that is.
func TestTemplateLikeStart(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		spec := hardened(t, "unused")
		spec.Stdout, spec.Stderr = os.Stdout, os.Stderr // given, that is all
		tmpl := template(t, spec)
		sh := func(script string, args ...string) []string {
			return append([]string{"sh", "-c", script, "sh"}, args...)
		}
		many := make([]string, 500)
		for i := range many {
			many[i] = fmt.Sprint("argument ", i)
		}
		for name, c := range map[string]struct {
			path string
			args []string
			env  []string
		}{
			"arguments":     {path: "/bin/sh", args: sh(`printf '[%s]' "$@"`, "a b", "", "c\n")},
			"many":          {path: "/bin/sh", args: sh(`echo $#; shift 499; echo "$1"`, many...)},
			"environment":   {path: "/usr/bin/env", args: []string{"env"}, env: []string{"A=1", "B=two words", "PATH=/bin"}},
			"along PATH":    {path: "true", args: []string{"true"}, env: []string{"PATH=/nowhere:/etc:/usr/bin"}},
			"without PATH":  {path: "true", args: []string{"true"}},
			"status":        {path: "/bin/sh", args: sh("exit 7")},
			"signal":        {path: "/bin/sh", args: sh("kill -9 $$")},
			"missing":       {path: "/nowhere/program", args: []string{"program"}},
			"missing PATH":  {path: "program", args: []string{"program"}, env: []string{"PATH=/nowhere:/bin"}},
			"no program":    {path: "/etc/ld.so.cache", args: []string{"x"}},
			"directory":     {path: "/usr", args: []string{"x"}},
			"identity":      {path: "/bin/sh", args: sh("id -u; grep -e Cap -e Seccomp: -e NoNewPrivs /proc/self/status; pwd; ls /proc/self/fd")},
			"own processes": {path: "/bin/sh", args: sh("echo $$; ls -d /proc/[0-9]*")},
			"large":         {path: "/bin/sh", args: sh(`echo ${#1} ${#2}`, strings.Repeat("x", 100_000), strings.Repeat("y", 30_000))},
			"NUL":           {path: "/bin/sh", args: []string{"a\x00b"}},
			"no arguments":  {path: "/bin/sh"},
			"empty path":    {args: []string{"sh"}},
			"bad variable":  {path: "/bin/sh", args: sh("true"), env: []string{"NOTHING"}},
			"too large":     {path: "/bin/sh", args: sh("true", strings.Repeat("x", 200_000))},
		} {
			want := follow(t, func(out *os.File) (*nsexec.Process, error) {
				s := *spec
				s.Path, s.Args, s.Env, s.Stdout, s.Stderr = c.path, c.args, c.env, out, out
				return nsexec.Start(&s)
			})
			got := follow(t, func(out *os.File) (*nsexec.Process, error) {
				return tmpl.Start(nsexec.Command{Path: c.path, Args: c.args, Env: c.env, Stdout: out, Stderr: out})
			})
			times := cmpopts.IgnoreFields(nsexec.Status{}, "Wall", "User", "System", "MaxRSS")
			if diff := cmp.Diff(want, got, times, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s: compiled for it, and from the template:\n%s", name, diff)
			}
		}
	})
}

// A step that fails is named as it would be otherwise.
func TestTemplateFails(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		spec := hardened(t, "true")
		spec.Mounts.Ops = append(spec.Mounts.Ops, mounts.Bind{Source: "/missing", Dest: "/m"})
		tmpl := template(t, spec)
		_, want := nsexec.Start(spec)
		_, got := tmpl.Start(nsexec.Command{Path: "true", Args: []string{"true"}})
		var step *nsexec.StartError
		if !errors.As(got, &step) || step.On != "/missing" || !errors.Is(got, unix.ENOENT) || got.Error() != want.Error() {
			t.Errorf("from the template %v, compiled %v", got, want)
		}
	})
}

func TestTemplateAtOnce(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		spec := hardened(t, "unused")
		spec.Stdout = os.Stdout
		tmpl := template(t, spec)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				o := follow(t, func(out *os.File) (*nsexec.Process, error) {
					return tmpl.Start(nsexec.Command{Path: "/bin/echo", Args: []string{"echo", fmt.Sprint(i)}, Stdout: out})
				})
				if want := fmt.Sprintln(i); o.Out != want || o.Status.ExitCode != 0 {
					t.Errorf("launch %d: %+v", i, o)
				}
			})
		}
		all.Wait()
	})
}

// What the program was compiled for and no longer holds is not used.
func TestTemplateOfAnotherTime(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		// A hard limit that is lowered stays so, also for the other tests.
		const child = "POSTERN_TEST_LOWERS_LIMIT"
		if os.Getenv(child) == "" {
			run := "-test.run=^TestTemplateOfAnotherTime$"
			if os.Geteuid() == 0 {
				run += "/^root$"
			}
			cmd := exec.Command("/proc/self/exe", run, "-test.v")
			cmd.Env = append(os.Environ(), child+"=1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestTemplateOfAnotherTime") {
				t.Errorf("%v\n%s", err, out)
			}
			return
		}
		spec := hardened(t, "unused")
		spec.Stdout = os.Stdout
		spec.Limits = []pidone.Limit{{Resource: unix.RLIMIT_CORE, Soft: 4096, Hard: 4096}}
		tmpl := template(t, spec)
		core := func() string {
			o := follow(t, func(out *os.File) (*nsexec.Process, error) {
				return tmpl.Start(nsexec.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "ulimit -c"}, Stdout: out})
			})
			return o.Out + o.Err
		}
		if got := core(); got != "8\n" { // of 512 bytes
			t.Errorf("limit %q", got)
		}
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 512, Max: 512}); err != nil {
			t.Fatal(err)
		}
		if got := core(); got != "1\n" {
			t.Errorf("with a lower limit of the host's: %q", got)
		}
	})
}

// Standard streams may be given that the template was made without, and not
// given that it was made with.
func TestTemplateOtherStreams(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		spec := hardened(t, "unused")
		spec.Stderr = os.Stderr
		for i, op := range spec.Mounts.Ops {
			if dev, ok := op.(mounts.Dev); ok { // whose null replaces streams that were not given
				dev.FixedNodes = true
				spec.Mounts.Ops[i] = dev
			}
		}
		tmpl := template(t, spec)
		in, err := os.Open("/proc/self/comm")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		o := follow(t, func(out *os.File) (*nsexec.Process, error) {
			return tmpl.Start(nsexec.Command{Path: "/bin/cat", Args: []string{"cat"}, Stdin: in, Stdout: out})
		})
		if comm, _ := os.ReadFile("/proc/self/comm"); o.Out != string(comm) || o.Status.ExitCode != 0 {
			t.Errorf("%+v", o)
		}
	})
}

func TestTemplateClosed(t *testing.T) {
	tmpl, err := nsexec.NewTemplate(hardened(t, "unused"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Start(nsexec.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Close(); err != nil {
		t.Error(err)
	}
	if st, err := p.Wait(context.Background()); err != nil || st.ExitCode != 3 {
		t.Errorf("a launch from a template that was closed meanwhile: %+v, %v", st, err)
	}
	if _, err := tmpl.Start(nsexec.Command{Path: "/bin/true", Args: []string{"true"}}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("from a closed template: %v", err)
	}
}

func TestTemplateRefuses(t *testing.T) {
	for field, change := range map[string]func(*nsexec.Spec){
		"Init":     func(s *nsexec.Spec) { s.Init = false },
		"Launcher": func(s *nsexec.Spec) { s.Launcher = &nsexec.Launcher{} },
		"UIDMap":   func(s *nsexec.Spec) { s.UIDMap = []nsexec.IDMap{{Count: 1}} },
		"SetPWD":   func(s *nsexec.Spec) { s.SetPWD = true },
		"KeepFDs":  func(s *nsexec.Spec) { s.KeepFDs = true },
		"Dir":      func(s *nsexec.Spec) { s.Dir = "relative" },
	} {
		s := hardened(t, "unused")
		change(s)
		var se *nsexec.SpecError
		if _, err := nsexec.NewTemplate(s); !errors.As(err, &se) || se.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
