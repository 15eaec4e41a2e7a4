//go:build linux

package nsexec_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// Every field that cannot be honoured is named before anything starts.
func TestSpecErrors(t *testing.T) {
	dir := open(t, t.TempDir())
	closed := open(t, os.DevNull)
	closed.Close()
	other := uint32(7)
	for _, c := range []struct {
		name  string
		spoil func(*nsexec.Spec)
		field string
		errno error
	}{
		{"no path", func(s *nsexec.Spec) { s.Path = "" }, "Path", nil},
		{"NUL in path", func(s *nsexec.Spec) { s.Path = "/bin/sh\x00x" }, "Path", nil},
		{"no argv", func(s *nsexec.Spec) { s.Args = nil }, "Args", nil},
		{"NUL in argv", func(s *nsexec.Spec) { s.Args = []string{"sh", "a\x00b"} }, "Args", nil},
		{"NUL in environment", func(s *nsexec.Spec) { s.Env = []string{"A=\x00"} }, "Env", nil},
		{"environment without =", func(s *nsexec.Spec) { s.Env = []string{"A"} }, "Env", nil},
		{"environment without name", func(s *nsexec.Spec) { s.Env = []string{"=x"} }, "Env", nil},
		{"long argument", func(s *nsexec.Spec) { s.Args = []string{"sh", strings.Repeat("x", 128<<10)} }, "Args", unix.E2BIG},
		{"long variable", func(s *nsexec.Spec) { s.Env = []string{"A=" + strings.Repeat("x", 128<<10)} }, "Env", unix.E2BIG},
		{"many arguments", func(s *nsexec.Spec) { s.Args = strings.Split(strings.Repeat("x", 1<<20), "") }, "Args", unix.E2BIG},
		{"NUL in dir", func(s *nsexec.Spec) { s.Dir = "/\x00" }, "Dir", nil},
		{"NUL in fallback", func(s *nsexec.Spec) { s.DirFallback = []string{"/\x00"} }, "Dir", nil},
		{"relative dir", func(s *nsexec.Spec) { s.Dir = "tmp" }, "Dir", nil},
		{"mounts in the caller's namespace", func(s *nsexec.Spec) { s.Namespaces.Mount = nsexec.Share }, "Mounts", nil},
		{"init in the caller's PID namespace", func(s *nsexec.Spec) { s.Namespaces.PID = nsexec.Share }, "Init", nil},
		{"terminal without init", func(s *nsexec.Spec) { s.Terminal, s.Init = true, false }, "Terminal", nil},
		{"terminal without mounts", func(s *nsexec.Spec) { s.Terminal, s.Mounts = true, nil }, "Terminal", nil},
		{"hostname in the caller's namespace", func(s *nsexec.Spec) { s.Hostname, s.Namespaces.UTS = ptr("x"), nsexec.Share }, "Hostname", nil},
		{"NUL in hostname", func(s *nsexec.Spec) { s.Hostname = ptr("\x00") }, "Hostname", nil},
		{"maps without user namespace", func(s *nsexec.Spec) {
			s.Namespaces.User, s.UIDMap, s.GIDMap = nsexec.Share, []nsexec.IDMap{{Count: 1}}, []nsexec.IDMap{{Count: 1}}
		}, "UIDMap", nil},
		{"half a map", func(s *nsexec.Spec) { s.UIDMap = []nsexec.IDMap{{Count: 1}} }, "UIDMap", nil},
		{"userns limit without user namespace", func(s *nsexec.Spec) { s.DisableUserns, s.Namespaces.User = true, nsexec.Share }, "DisableUserns", nil},
		{"new privileges and seccomp", func(s *nsexec.Spec) { s.AllowNewPrivs, s.Seccomp = true, hardened(t, "x").Seccomp }, "AllowNewPrivs", nil},
		{"empty filter", func(s *nsexec.Spec) { s.Seccomp = []seccompbpf.Filter{nil} }, "Seccomp", seccompbpf.ErrInvalidFilter},
		{"unknown limit", func(s *nsexec.Spec) { s.Limits = []pidone.Limit{{Resource: 99}} }, "Limits", nil},
		{"negative limit", func(s *nsexec.Spec) { s.Limits = []pidone.Limit{{Resource: -1}} }, "Limits", nil},
		{"soft limit above hard", func(s *nsexec.Spec) { s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_CPU, Soft: 2, Hard: 1}} }, "Limits", nil},
		{"directory as stdin", func(s *nsexec.Spec) { s.Stdin = dir }, "Stdin", nil},
		{"directory as stdout", func(s *nsexec.Spec) { s.Stdout = dir }, "Stdout", nil},
		{"directory as stderr", func(s *nsexec.Spec) { s.Stderr = dir }, "Stderr", nil},
		{"directory as file", func(s *nsexec.Spec) { s.Files = []*os.File{dir} }, "Files[0]", nil},
		{"closed stdin", func(s *nsexec.Spec) { s.Stdin = closed }, "Stdin", unix.EBADF},
		{"closed file", func(s *nsexec.Spec) { s.Files = []*os.File{closed} }, "Files[0]", unix.EBADF},
		{"nil file", func(s *nsexec.Spec) { s.Files = []*os.File{nil} }, "Files[0]", nil},
		{"closed stage file", func(s *nsexec.Spec) { s.StageFiles = []*os.File{closed} }, "StageFiles[0]", unix.EBADF},
		{"nil stage file", func(s *nsexec.Spec) { s.StageFiles = []*os.File{nil} }, "StageFiles[0]", nil},
		{"closed namespace", func(s *nsexec.Spec) { s.Namespaces.Net = nsexec.Join(closed) }, "Namespaces: the net namespace to join", unix.EBADF},
		{"nil namespace", func(s *nsexec.Spec) { s.Namespaces.Net = nsexec.Join(nil) }, "Namespaces: the net namespace to join", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			testutil.NoLeak(t, func() {
				s := guest.Shell("true")
				s.UID, s.GID = &other, &other
				c.spoil(s)
				var se *nsexec.SpecError
				p, err := nsexec.Start(s)
				switch {
				case !errors.As(err, &se) || p != nil:
					t.Errorf("%v, %v", p, err)
				case se.Field != c.field || se.Reason == "":
					t.Errorf("field %q, want %q: %v", se.Field, c.field, err)
				case c.errno != nil && !errors.Is(err, c.errno):
					t.Errorf("%v is no %v", err, c.errno)
				}
				if _, err := s.Explain(); err == nil {
					t.Error("Explain has no objection")
				}
			})
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	err := (&nsexec.Spec{Env: []string{"A"}, Mounts: &mounts.Tree{Ops: []mounts.Op{mounts.Dir{Dest: "x"}}}}).Validate()
	var bad *mounts.InvalidError
	if !errors.As(err, &bad) {
		t.Errorf("no mounts.InvalidError: %v", err)
	}
	for _, want := range []string{"Spec.Path", "Spec.Args", "Spec.Env", "Spec.Mounts", `"x" is not absolute`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from %v", want, err)
		}
	}
}

// What the kernel takes, a launch takes.
func TestLargestArguments(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		one := strings.Repeat("x", 128<<10-1)
		s := guest.Spec([]string{"sh", "-c", `echo ${#1} ${#A}`, "sh", one})
		s.Env = append(s.Env, "A="+one[:len(one)-2])
		if got, want := guest.MustOutput(t, s), fmt.Sprint(len(one), len(one)-2); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		// What Validate lets through but the kernel does not is an exec error.
		s = guest.Spec(append([]string{"/bin/true"}, strings.Split(strings.Repeat("x", 100000), "")...))
		s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_STACK, Soft: 64 << 10, Hard: 64 << 10}}
		if r := guest.Run(t, s); r.ExecErr != unix.E2BIG || r.ExitCode != 126 || !strings.Contains(r.Out, "Argument list too long") {
			t.Errorf("%+v", r)
		}
	})
}

func TestSourcesThatCannotBeBound(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		loop, file := dir+"/loop", dir+"/file"
		if err := os.Symlink("loop", loop); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		type testCase struct {
			source   string
			optional bool
			errno    unix.Errno
		}
		cases := []testCase{{dir + "/missing", false, unix.ENOENT}, {loop, false, unix.ELOOP}, {loop, true, unix.ELOOP}, {file + "/below", false, unix.ENOTDIR}, {file + "/below", true, unix.ENOTDIR},
			{"/" + strings.Repeat("x", 256), false, unix.ENAMETOOLONG}, {"/" + strings.Repeat("x/", 2100), true, unix.ENAMETOOLONG}}
		if os.Geteuid() != 0 {
			cases = append(cases, testCase{"/root/x", false, unix.EACCES}, testCase{"/root/x", true, unix.EACCES})
		}
		for _, c := range cases {
			s := guest.Shell("true", mounts.Bind{Source: c.source, Dest: "/mnt", Optional: c.optional})
			se := wantStartError(t, s, mounts.DoSource, c.errno)
			if se.On != c.source || !strings.Contains(se.Error(), c.source) {
				t.Errorf("on %q: %v", se.On, se)
			}
		}
		// The control: what is missing may be missing if that is said.
		guest.Output(t, "test ! -e /mnt", mounts.Bind{Source: dir + "/missing", Dest: "/mnt", Optional: true})
		for _, source := range []string{"", "relative", "./x", "/a\x00b"} {
			testutil.NoLeak(t, func() {
				var bad *mounts.InvalidError
				if _, err := nsexec.Start(guest.Shell("true", mounts.Bind{Source: source, Dest: "/mnt"})); !errors.As(err, &bad) {
					t.Errorf("source %q: %v", source, err)
				}
				if _, err := nsexec.Start(guest.Shell("true", mounts.Bind{Source: "/usr", Dest: source})); !errors.As(err, &bad) {
					t.Errorf("destination %q: %v", source, err)
				}
			})
		}
	})
}

// host runs a probe as a host of guests in a process of its own and returns
// what it prints.
func host(t *testing.T, probe string, change func(*exec.Cmd)) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), guest.ProbeEnv(probe))
	if change != nil {
		change(cmd)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", probe, err)
	}
	return strings.TrimSpace(string(out))
}

// A host may have closed its standard streams; the launch's own descriptors
// then have those numbers.
var closedProbe = guest.Probe("closed streams", func([]string) {
	saved, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		panic(err)
	}
	report := os.NewFile(uintptr(saved), "report")
	// The runtime takes descriptors for itself at the first launch.
	if _, err := guest.Try(guest.Shell("true")); err != nil {
		panic(err)
	}
	for fd := range 3 {
		unix.Close(fd)
	}
	for range 3 {
		r, err := guest.Try(guest.Shell("ls /proc/self/fd | tr '\\n' ' '; cat; exit 6"))
		fmt.Fprintf(report, "%q %d %v, ", r.Out, r.ExitCode, err)
	}
	for fd := range 3 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			fmt.Fprintf(report, "descriptor %d is left open", fd)
		}
	}
})

func TestClosedStandardStreams(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want := strings.TrimSpace(strings.Repeat(`"0 1 2 3 " 6 <nil>, `, 3))
		if got := host(t, closedProbe, nil); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// With SIGCHLD ignored the kernel reaps every child at once, and a host may
// have a loop that reaps whatever it finds.
var ignoringProbe = guest.Probe("ignore SIGCHLD", func([]string) {
	signal.Ignore(unix.SIGCHLD)
	printStatuses()
})

var reapingProbe = guest.Probe("reap everything", func([]string) {
	chld := make(chan os.Signal, 100)
	signal.Notify(chld, unix.SIGCHLD)
	go func() {
		for range chld {
			for {
				if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
					break
				}
			}
		}
	}()
	printStatuses()
})

func printStatuses() {
	for _, script := range []string{"exit 7", "kill -9 $$", "exit 0"} {
		for range 5 {
			r, err := guest.Try(guest.Shell(script))
			fmt.Println(r.ExitCode, r.Signal, r.Killed, err)
		}
	}
	for range 5 {
		_, err := guest.Try(guest.Shell("true", mounts.Bind{Source: "/missing", Dest: "/mnt"}))
		var se *nsexec.StartError
		fmt.Println(errors.As(err, &se))
	}
}

func TestHostThatLosesItsChildren(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want := strings.Repeat("7 signal 0 false <nil>\n", 5) + strings.Repeat("137 killed false <nil>\n", 5) +
			strings.Repeat("0 signal 0 false <nil>\n", 5) + strings.TrimSpace(strings.Repeat("true\n", 5))
		for _, probe := range []string{ignoringProbe, reapingProbe} {
			if got := host(t, probe, nil); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", probe, got, want)
			}
		}
	})
}

// A host that has no descriptors left gets an error and loses none.
var exhaustedProbe = guest.Probe("no descriptors", func([]string) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	defer null.Close()
	// The runtime takes descriptors for itself at the first launch.
	if _, err := guest.Try(guest.Shell("true")); err != nil {
		panic(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		panic(err)
	}
	says := os.NewFile(uintptr(pipe[1]), "says")
	before := countFDs()
	const limit = 64
	old := unix.Rlimit{}
	unix.Getrlimit(unix.RLIMIT_NOFILE, &old)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		panic(err)
	}
	// More files than the guest can have numbers for.
	s := guest.Shell("true")
	for range limit {
		s.Files = append(s.Files, null)
	}
	_, err = guest.Try(s)
	fmt.Println(errors.Is(err, unix.EMFILE) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL))
	if !errors.Is(err, unix.EMFILE) {
		fmt.Println(err)
	}
	// Fewer and fewer descriptors for the host, down to none.
	var taken []int
	for {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	for i, fd := range taken {
		s := guest.Shell("echo ran")
		s.Stdout = says
		p, err := nsexec.Start(s)
		failed := err != nil
		if !failed {
			_, err = p.Wait(context.Background())
		}
		if n, _ := unix.Read(pipe[0], make([]byte, 16)); failed && n > 0 {
			fmt.Printf("with %d free: the program ran, and yet %v\n", i, err)
		}
		if err == nil && i == 0 || err != nil && !errors.Is(err, unix.EMFILE) {
			fmt.Printf("with %d free: %v\n", i, err)
		}
		unix.Close(fd)
	}
	if after := countFDs(); after != before {
		fmt.Printf("%d descriptors, there were %d\n", after, before)
	}
})

func countFDs() (n int) {
	for fd := range 100 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

func TestNoDescriptorsLeft(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if got := host(t, exhaustedProbe, nil); got != "true" {
			t.Error(got)
		}
	})
}

// The same with processes.
var noProcessesProbe = guest.Probe("no processes", func([]string) {
	if _, err := guest.Try(guest.Shell("true")); err != nil {
		panic(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{}); err != nil {
		panic(err)
	}
	_, err := guest.Try(guest.Shell("true"))
	var se *nsexec.StartError
	fmt.Println(errors.As(err, &se), errors.Is(err, unix.EAGAIN), se != nil && se.Hint != "")
})

func TestNoProcessesLeft(t *testing.T) {
	asNobody(t, func(t *testing.T) {
		if got := host(t, noProcessesProbe, nil); got != "true true true" {
			t.Error(got)
		}
	})
}

func TestDirectoryOnStandardInput(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := open(t, "/")
		got := host(t, inheritProbe, func(c *exec.Cmd) { c.Stdin = dir })
		if !strings.Contains(got, "Spec.Stdin: is a directory") {
			t.Error(got)
		}
	})
}

var inheritProbe = guest.Probe("inherit stdin", func([]string) {
	s := guest.Shell("true")
	s.Stdin = os.Stdin
	_, err := guest.Try(s)
	fmt.Println(err)
})

// Output that nobody reads any more is the guest's trouble alone.
func TestClosedReader(t *testing.T) {
	testutil.NoLeak(t, func() {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		s := guest.Spec([]string{"yes"})
		s.Stdout = w
		res := guest.Run(t, s)
		w.Close()
		if res.Signal != unix.SIGPIPE || res.ExitCode != 128+int(unix.SIGPIPE) {
			t.Errorf("%+v", res)
		}
	})
}
