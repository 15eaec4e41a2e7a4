//go:build linux

package nsexec_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

func TestHardenedGuest(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			r := guest.Run(t, hardened(t, "sh", "-c", `
				pwd; id -u; id -g; id -G
				sed -n 's/^\(Cap...\|NoNewPrivs\|Seccomp\):\t/\1 /p' /proc/self/status
				cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups | tr -s ' '
				ls /proc/self/fd | tr '\n' ' '; echo
				umask; env | sort; exit 7`))
			uid, gid := os.Getuid(), os.Getgid()
			want := fmt.Sprintf(`/workspace
65534
65534
65534
CapInh 0000000000000000
CapPrm 0000000000000000
CapEff 0000000000000000
CapBnd 0000000000000000
CapAmb 0000000000000000
NoNewPrivs 1
Seccomp 2
 65534 %d 1
 65534 %d 1
deny
0 1 2 3 
%04o
PATH=/usr/bin:/bin:/usr/sbin:/sbin
PWD=/workspace
`, uid, gid, umask())
			if r.Out != want || r.ExitCode != 7 || r.Signal != 0 || r.Killed || r.ExecErr != 0 {
				t.Errorf("status %+v, output\n%s\nwant\n%s", r.Status, r.Out, want)
			}
			if r.MaxRSS == 0 {
				t.Errorf("no resource usage: %+v", r.Status)
			}
		})
	})
}

func umask() int {
	m := unix.Umask(0o22)
	unix.Umask(m)
	return m
}

// A zero Spec has no wall: the program runs as if forked.
func TestZeroSpec(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			s := &nsexec.Spec{Path: "sh", Args: []string{"sh", "-c", `for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done; pwd; echo $$; exit 3`}, Env: []string{"PATH=/usr/bin:/bin"}}
			r := guest.Run(t, s)
			var want strings.Builder
			for _, n := range namespaces {
				fmt.Fprintln(&want, nsOf(t, n))
			}
			dir, _ := os.Getwd()
			fmt.Fprintln(&want, dir)
			if !strings.HasPrefix(r.Out, want.String()) || r.ExitCode != 3 {
				t.Errorf("%d: %s\nwant %s", r.ExitCode, r.Out, want.String())
			}
		})
	})
}

func TestStandardStreams(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		in, feed := testutil.Pipe(t)
		errR, errW := testutil.Pipe(t)
		s := guest.Shell("cat; echo complaint >&2")
		s.Stdin, s.Stderr = in, errW
		io.WriteString(feed, "fed\n")
		feed.Close()
		r := guest.Run(t, s)
		errW.Close()
		complaint, _ := io.ReadAll(errR)
		if r.Out != "fed\n" || string(complaint) != "complaint\n" {
			t.Errorf("stdout %q, stderr %q", r.Out, complaint)
		}
		s = guest.Shell("readlink /proc/self/fd/0; cat")
		if r := guest.Run(t, s); r.Out != "/dev/null\n" {
			t.Errorf("without Stdin: %q", r.Out)
		}
		// Descriptors may be any of ours in any order, standard ones included.
		s = guest.Shell("echo 1; echo 2 >&2; echo 3 >&3")
		out, w := testutil.Pipe(t)
		s.Stdout, s.Stderr, s.Files = w, w, []*os.File{w}
		guest.Run(t, s)
		w.Close()
		if b, _ := io.ReadAll(out); string(b) != "1\n2\n3\n" {
			t.Errorf("one file for all: %q", b)
		}
	})
}

func TestFiles(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		for _, p := range []string{one, two} {
			if err := os.WriteFile(p, []byte(filepath.Base(p)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f1, f2, shared := open(t, one), open(t, two), open(t, dir)
		s := guest.Shell("cat /proc/self/fd/3 <&3; cat <&4; cat /bound/two; ls /proc/self/fd | tr '\\n' ' '")
		s.Files = []*os.File{f1, f2}
		s.StageFiles = []*os.File{shared}
		s.Mounts.Ops = append(s.Mounts.Ops, mounts.Bind{FD: ptr(s.StageFD(0)), Dest: "/bound"})
		r := guest.Run(t, s)
		if r.Out != "one\ntwo\ntwo\n0 1 2 3 4 5 " {
			t.Errorf("%d %q", r.ExitCode, r.Out)
		}
	})
}

// Without KeepFDs nothing but what is listed reaches a guest; with it
// everything does that is not close-on-exec.
func TestKeepFDs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		leak := open(t, os.DevNull)
		const number = 333
		if err := unix.Dup3(int(leak.Fd()), number, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(number)
		const closed = 334
		if err := unix.Dup3(int(leak.Fd()), closed, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(closed)
		var inherited strings.Builder // by this process, and what ls opens
		for fd := range 1024 {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fd < 3 || err == nil && flags&unix.FD_CLOEXEC == 0 {
				fmt.Fprintln(&inherited, fd)
			}
		}
		for keep, want := range map[bool]string{false: "0\n1\n2\n", true: inherited.String()} {
			for _, init := range []bool{true, false} {
				s := guest.Shell(`for f in /proc/self/fd/*; do [ ! -e "$f" ] || echo ${f##*/}; done`)
				s.KeepFDs, s.Init = keep, init
				numbers := strings.Fields(guest.MustOutput(t, s))
				slices.SortFunc(numbers, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
				if got := strings.Join(numbers, "\n") + "\n"; got != want {
					t.Errorf("KeepFDs %v, Init %v: %q, want %q", keep, init, got, want)
				}
			}
		}
	})
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestUmask(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		old := unix.Umask(0o31)
		defer unix.Umask(old)
		for _, c := range []struct {
			mask *uint32
			want string
		}{{nil, "0031"}, {ptr[uint32](0o77), "0077"}, {ptr[uint32](0), "0000"}} {
			for _, init := range []bool{true, false} {
				s := guest.Shell("umask")
				s.Umask, s.Init = c.mask, init
				if got := guest.MustOutput(t, s); got != c.want {
					t.Errorf("Init %v: umask %s, want %s", init, got, c.want)
				}
			}
		}
		// It has no effect on what the launch itself creates.
		if got := guest.Output(t, "stat -c %a /new /new/dir /tmp", mounts.Dir{Dest: "/new/dir"}); got != "755\n755\n1777" {
			t.Errorf("modes %q", got)
		}
	})
}

func TestSignalMask(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var set, old unix.Sigset_t
		set.Val[0] = 1 << (unix.SIGWINCH - 1)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
			t.Fatal(err)
		}
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		for keep, want := range map[bool]string{false: "0000000000000000", true: "0000000008000000"} {
			for _, init := range []bool{true, false} {
				// The mask of the thread that launches is what the stage finds.
				s := guest.Spec([]string{"sed", "-n", "s/SigBlk:\t//p", "/proc/self/status"})
				s.SignalMask, s.Init = keep, init
				if got := guest.MustOutput(t, s); got != want {
					t.Errorf("SignalMask %v, Init %v: %s, want %s", keep, init, got, want)
				}
			}
		}
	})
}

func TestHostname(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		own, _ := os.Hostname()
		for _, c := range []struct {
			name *string
			want string
		}{{nil, own}, {ptr("inside"), "inside"}, {ptr(""), ""}, {ptr(strings.Repeat("x", 64)), strings.Repeat("x", 64)}} {
			s := guest.Spec([]string{"uname", "-n"})
			s.Hostname = c.name
			if got := guest.MustOutput(t, s); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		s := guest.Shell("true")
		s.Hostname = ptr(strings.Repeat("x", 65))
		wantStartError(t, s, nsexec.DoHostname, unix.EINVAL)
		if now, _ := os.Hostname(); now != own {
			t.Errorf("the host is now called %q", now)
		}
	})
}

// wantStartError launches what must fail at a step, and leave nothing behind.
func wantStartError(t *testing.T, s *nsexec.Spec, step string, errno unix.Errno) *nsexec.StartError {
	t.Helper()
	var se *nsexec.StartError
	testutil.NoLeak(t, func() {
		r, err := guest.Try(s)
		switch {
		case err == nil:
			t.Errorf("launched: %+v", r)
		case !errors.As(err, &se):
			t.Errorf("error %T %v", err, err)
		case se.Step != step || se.Errno != errno || !errors.Is(err, errno):
			t.Errorf("error %v, want %q and errno %v", err, step, errno)
		}
	})
	if se == nil {
		return &nsexec.StartError{}
	}
	return se
}

func TestDir(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, c := range []struct {
			dir      string
			fallback []string
			want     string
		}{
			{"", nil, "/"}, {"/usr", nil, "/usr"}, {"/nowhere", []string{"/nor/here", "/tmp"}, "/tmp"}, {"/usr", []string{"/tmp"}, "/usr"},
			{"", []string{"/nowhere", "/proc"}, "/proc"},
		} {
			s := guest.Spec([]string{"readlink", "/proc/self/cwd"})
			s.Dir, s.DirFallback = c.dir, c.fallback
			if got := guest.MustOutput(t, s); got != c.want {
				t.Errorf("Dir %q, DirFallback %q: %q, want %q", c.dir, c.fallback, got, c.want)
			}
		}
		s := guest.Shell("true")
		s.Dir, s.DirFallback = "/nowhere", []string{"/nor/here"}
		if se := wantStartError(t, s, nsexec.DoDir, unix.ENOENT); se.On != "/nor/here" {
			t.Errorf("on %q", se.On)
		}
		// The caller's directory never shows in a guest with Mounts.
		s.Dir, s.DirFallback = t.TempDir(), nil
		wantStartError(t, s, nsexec.DoDir, unix.ENOENT)
	})
}

func TestNewSession(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, init := range []bool{true, false} {
			for fresh, want := range map[bool]string{true: "1", false: "0"} {
				s := guest.Shell(`read -r _ _ _ _ _ sid _ </proc/self/stat; echo $sid`)
				s.NewSession, s.Init = fresh, init
				if got := guest.MustOutput(t, s); got != want { // 0: a session outside the namespace
					t.Errorf("Init %v, NewSession %v: session %s, want %s", init, fresh, got, want)
				}
			}
		}
	})
}

// A limit above the caller's own hard limit is lowered to that.
func TestLimitsAreClamped(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
			t.Fatal(err)
		}
		s := guest.Shell("ulimit -Sn; ulimit -Hn")
		s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: own.Max + 5, Hard: own.Max + 5}}
		want := fmt.Sprintf("%d\n%d", own.Max, own.Max)
		r, err := guest.Try(s)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(r.Out) != want {
			t.Errorf("%q, want %q", r.Out, want)
		}
	})
}

func TestWaitAndSignalAfterTheEnd(t *testing.T) {
	testutil.NoLeak(t, func() {
		p, err := nsexec.Start(guest.Shell("exit 5"))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if st, err := p.Wait(ended); err != nil || st.ExitCode != 5 {
			t.Errorf("Wait after the end: %+v, %v", st, err)
		}
		if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Signal after the end: %v", err)
		}
		if f, err := p.Dup(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Dup after the end: %v %v", f, err)
		}
	})
}

func TestWaitHonoursContext(t *testing.T) {
	testutil.NoLeak(t, func() {
		in, feed := testutil.Pipe(t)
		s := guest.Shell("cat")
		s.Stdin = in
		p, err := nsexec.Start(s)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("no patience")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		if _, err := p.Wait(ctx); err != cause {
			t.Errorf("Wait: %v, want %v", err, cause)
		}
		feed.Close() // it was not ended by that
		if st, err := p.Wait(context.Background()); err != nil || st.ExitCode != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

func TestDupIsAPidfd(t *testing.T) {
	testutil.NoLeak(t, func() {
		in, feed := testutil.Pipe(t)
		s := guest.Shell("cat")
		s.Stdin = in
		p, err := nsexec.Start(s)
		in.Close()
		defer feed.Close()
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0); err != nil {
			t.Fatal(err)
		}
		st, err := p.Wait(context.Background())
		if err != nil || st.Signal != unix.SIGKILL || !st.Killed || st.ExitCode != 137 {
			t.Errorf("%+v %v", st, err)
		}
	})
}
