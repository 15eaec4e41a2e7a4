//go:build linux

package pidone_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// A session is a guest that is talked to over pipes.
type session struct {
	*nsexec.Process
	in  *os.File
	out *bufio.Reader
}

func start(t *testing.T, s *nsexec.Spec) *session {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdin, s.Stdout, s.Stderr = inR, outW, outW
	p, err := nsexec.Start(s)
	inR.Close()
	outW.Close()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
		if p != nil {
			p.Signal(unix.SIGKILL)
			<-p.Done()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &session{p, inW, bufio.NewReader(outR)}
}

// line returns the next line the guest writes.
func (s *session) line(t *testing.T) string {
	t.Helper()
	l, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatalf("read from the guest: %v", err)
	}
	return strings.TrimSuffix(l, "\n")
}

func (s *session) wait(t *testing.T) nsexec.Status {
	t.Helper()
	st, err := s.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Orphans become the init's, which reaps them.
func TestOrphansAreReaped(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := guest.Output(t, `
			for i in 1 2 3 4 5 6 7 8 9 10; do sh -c '(exec 3>&1; sh -c "exit $0" $0 & ) ' $i; done
			mkfifo /tmp/f; sh -c 'sh -c "read x </tmp/f; ps -o ppid= -p \$\$ >/tmp/f2" & ' ; mkfifo /tmp/f2
			echo go >/tmp/f; read ppid </tmp/f2; echo adopted by $ppid
			while ps -e -o ppid=,stat= | grep -q '^ *1 Z'; do :; done
			ps -e -o ppid=,stat= | grep -c '^ *1 Z'; true`)
		if got != "adopted by 1\n0" {
			t.Errorf("%q", got)
		}
	})
}

// The test above waits for zombies to go; without an init they would stay.
func TestZombiesStayWithoutReaper(t *testing.T) {
	s := guest.Shell(`sh -c 'sh -c "exit 0" & '; sh -c 'sh -c "exit 0" & echo $! >/tmp/pid'; read p </tmp/pid
		while [ -e /proc/$p ] && ! grep -q 'State:.Z' /proc/$p/status; do :; done; exec 2>/dev/null; grep State: /proc/$p/status || echo gone`)
	s.Init = false // the shell is PID 1 and does not wait for what it adopts
	if got := guest.MustOutput(t, s); !strings.Contains(got, "Z (zombie)") {
		t.Skipf("this shell reaps what it adopts: %q", got)
	}
}

func TestSignalsReachTheWholeGroup(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGALRM, 40, 64} {
			s := start(t, guest.ProbeSpec(t, groupProbe, []string{fmt.Sprint(int(sig)), "3"}))
			for range 4 {
				if got := s.line(t); got != "ready" {
					t.Fatalf("%q", got)
				}
			}
			if err := s.Signal(sig); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				if got := s.line(t); got != fmt.Sprintf("got %d", int(sig)) {
					t.Errorf("signal %d: %q", sig, got)
				}
			}
			if st := s.wait(t); st.ExitCode != 3 {
				t.Errorf("signal %d: %+v", sig, st)
			}
		}
	})
}

// groupProbe says which signal it got, as do as many children of it.
var groupProbe = guest.Probe("group", func(args []string) {
	var sig, children int
	fmt.Sscan(args[0], &sig)
	fmt.Sscan(args[1], &children)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.Signal(sig))
	var procs []*os.Process
	for range children {
		p, err := os.StartProcess("/probe", []string{"probe", args[0], "0"}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
		if err != nil {
			panic(err)
		}
		procs = append(procs, p)
	}
	fmt.Println("ready")
	fmt.Printf("got %d\n", int((<-c).(syscall.Signal)))
	for _, p := range procs {
		p.Wait()
	}
	os.Exit(3)
})

// A signal that comes before the command exists is held for it.
func TestEarlySignalIsHeld(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for range 20 {
			p, err := nsexec.Start(guest.Spec([]string{"sleep", "1000"}))
			if err != nil {
				t.Fatal(err)
			}
			// Start returns as soon as the program has been executed, so this
			// is as early as any caller can be.
			if err := p.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if st, _ := p.Wait(context.Background()); st.Signal != unix.SIGTERM || st.Killed {
				t.Errorf("%+v", st)
			}
		}
	})
}

// The guest cannot end or disturb its init.
func TestInitIsOutOfReach(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, uid := range []uint32{0, 65534} {
			s := guest.ProbeSpec(t, attackProbe, nil)
			s.UID, s.GID = &uid, &uid
			sess := start(t, s)
			var got []string
			for {
				l, err := sess.out.ReadString('\n')
				if err == io.EOF {
					break
				}
				got = append(got, strings.TrimSpace(l))
			}
			if want := "alive|forwarded terminated"; strings.Join(got, "|") != want {
				t.Errorf("UID %d: %q, want %q", uid, strings.Join(got, "|"), want)
			}
			if st := sess.wait(t); st.ExitCode != 9 || st.Killed {
				t.Errorf("UID %d: %+v", uid, st)
			}
		}
	})
}

var attackProbe = guest.Probe("attack", func([]string) {
	c := make(chan os.Signal, 10)
	signal.Notify(c, unix.SIGTERM)
	unix.Kill(1, unix.SIGKILL)
	unix.Kill(1, unix.SIGSTOP)
	fmt.Println("alive")
	unix.Kill(1, unix.SIGTERM)
	fmt.Println("forwarded", <-c)
	os.Exit(9)
})

// Nothing of PID 1 can be looked at from the guest.
func TestInitIsClosed(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, uid := range []uint32{0, 65534} {
			s := guest.Shell(`cat /proc/1/comm
				for f in environ mem maps smaps auxv stack syscall io pagemap; do cat /proc/1/$f >/dev/null 2>/tmp/err && echo $f is open; grep -q 'denied\|not permitted' /tmp/err || echo $f: $(cat /tmp/err); done
				for l in exe root cwd ns/net; do readlink /proc/1/$l && echo $l is open; done
				for fd in 0 1 2 3 4 5; do readlink /proc/1/fd/$fd && echo fd $fd is open; (: </proc/1/fd/$fd) 2>/dev/null && echo fd $fd opens; done
				(: >/proc/1/mem) 2>/dev/null && echo mem is writable
				readlink /proc/self/exe >/dev/null && cat /proc/self/environ >/dev/null && echo control`)
			s.UID, s.GID = &uid, &uid
			r := guest.Run(t, s)
			// A file this kernel does not have is no opening.
			var got []string
			for l := range strings.Lines(r.Out) {
				if !strings.Contains(l, "No such file") {
					got = append(got, strings.TrimSpace(l))
				}
			}
			if strings.Join(got, "|") != "postern-init|control" {
				t.Errorf("UID %d: %q", uid, got)
			}
		}
	})
}

// PID 1 is a handful of pages of the launch image and nothing else.
func TestInitFootprint(t *testing.T) {
	s := start(t, guest.Spec([]string{"cat"}))
	read := func(name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.PID(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can look at a process that is not dumpable")
	}
	field := func(text, name string) (n int) {
		_, rest, ok := strings.Cut("\n"+text, "\n"+name)
		if !ok {
			t.Fatalf("no %q in %q", name, text)
		}
		fmt.Sscan(rest, &n)
		return n
	}
	rollup := read("smaps_rollup")
	private := field(rollup, "Private_Clean:") + field(rollup, "Private_Dirty:")
	threads := field(read("status"), "Threads:")
	t.Logf("%d KiB private, %d thread", private, threads)
	if private >= 64 || threads != 1 {
		t.Errorf("%d KiB private, %d threads", private, threads)
	}
	for line := range strings.Lines(read("maps")) {
		if f := strings.Fields(line); len(f) > 5 && strings.HasPrefix(f[5], "/") && !strings.HasPrefix(f[5], "/memfd:postern-stage") {
			t.Errorf("maps %s", f[5])
		}
	}
	if env := read("environ"); env != "" {
		t.Errorf("has an environment: %q", env)
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.PID()))
	if err != nil || len(links) > 5 {
		t.Errorf("%d descriptors: %q, %v", len(links), links, err)
	}
	// This process, which has a runtime, is told from one that has none.
	b, _ := os.ReadFile("/proc/self/smaps_rollup")
	if field(string(b), "Private_Dirty:") < 64 {
		t.Error("the measure does not tell a Go process from the init")
	}
}

// What the command leaves behind dies with it, whatever it does to live on.
func TestStragglersDie(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		testutil.NoLeak(t, func() {
			out, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			// The straggler holds the write end; end of file says it is gone.
			s := guest.Shell(`mkfifo /tmp/f; setsid sh -c 'trap "" TERM INT HUP; echo up >/tmp/f; while :; do sleep 1000; done' & read x </tmp/f; echo $x; exit 4`)
			s.Stdout = w
			p, err := nsexec.Start(s)
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(out)
			if st, _ := p.Wait(context.Background()); string(b) != "up\n" || err != nil || st.ExitCode != 4 || st.Killed {
				t.Errorf("%q %v %+v", b, err, st)
			}
		})
	})
}

func TestKillEndsEverything(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := start(t, guest.Shell(`trap "" TERM; setsid sh -c 'trap "" TERM; sleep 1000' & (sleep 1000 &) ; echo up; wait`))
		s.line(t)
		if err := s.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if st := s.wait(t); !st.Killed || st.ExitCode != 137 || st.Signal != unix.SIGKILL {
			t.Errorf("%+v", st)
		}
		if _, err := s.out.ReadString('\n'); err != io.EOF {
			t.Errorf("something still holds the pipe: %v", err)
		}
	})
}

// A stopped guest is stopped as a whole and goes on.
func TestStopAndContinue(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := start(t, guest.Shell(`while read x; do echo $x; done; exit 2`))
		for range 3 {
			if err := s.Signal(unix.SIGTSTP); err != nil {
				t.Fatal(err)
			}
			if err := s.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			io.WriteString(s.in, "on\n")
			if got := s.line(t); got != "on" {
				t.Errorf("%q", got)
			}
		}
		s.in.Close()
		if st := s.wait(t); st.ExitCode != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// A fragment is data: it can be looked at without launching anything.
func TestInitProgram(t *testing.T) {
	b := &stage.Builder{}
	pidone.Init{Control: 3, AwaitHost: true, Forward: true, Command: pidone.Command{Path: "/bin/true", Args: []string{"true"}, OwnGroup: true}}.Emit(b)
	b.Place(&b.Fail)
	pidone.SendRecord(b, 3, stage.Failed, stage.FailedOp, stage.FailedErrno)
	listing := b.Program().String()
	at := -1
	for _, want := range []string{"signalfd4", "read(3", "clone(", "ppoll", "kill(-2", "wait4(-1", "setpgid(0, 0)", "\"execute /bin/true\""} {
		i := strings.Index(listing, want)
		if i <= at {
			t.Errorf("%q is missing or out of order in\n%s", want, listing)
		}
		at = i
	}
}
