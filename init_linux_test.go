package postern

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

// Promises 70, 71, 74, 76: the init is PID 1, reaps orphans, and signals from
// inside do not harm it.
func TestInit(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		if got := outputOf(t, s, "echo $$ $PPID; cat /proc/1/comm"); got != "2 1\npostern-init" {
			t.Errorf("got %q", got)
		}
		r := run(t, s, Python(`import os, time
r, w = os.pipe()
if os.fork() == 0:          # the middle one ends at once
    if os.fork() == 0:      # so this one goes to the init
        os.close(r)
        while os.getppid() != 1: time.sleep(0.001)
        os.write(w, str(os.getpid()).encode())
        os._exit(0)
    os._exit(0)
os.wait()
os.close(w)
pid = os.read(r, 20).decode()
while os.path.exists("/proc/" + pid): time.sleep(0.001)
print("reaped")`))
		if string(r.Stdout) != "reaped\n" {
			t.Errorf("%q %s", r.Stdout, r.Stderr)
		}
		if got := outputOf(t, s, "kill -KILL 1; kill -STOP 1; echo alive"); got != "alive" {
			t.Errorf("SIGKILL to the init: %q", got)
		}
		if r := run(t, s, Bash("kill -TERM 1; sleep 1000")); r.ExitCode != 143 {
			t.Errorf("SIGTERM to the init: exit code %d", r.ExitCode)
		}
		if r := run(t, s, Bash("kill -INT 1; sleep 1000")); r.ExitCode != 130 {
			t.Errorf("SIGINT to the init: exit code %d", r.ExitCode)
		}
	})
}

// Promises 72, 73, with the command itself as the control. The init holds
// nothing of the host anyway.
func TestInitIsClosed(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("POSTERN_TEST_SECRET", "canary")
		s := sandbox(t, Profile{})
		for _, look := range []string{
			"cat /proc/%s/environ", "cat /proc/%s/maps", "cat /proc/%s/auxv", "head -c 0 /proc/%s/mem", "readlink /proc/%s/fd/0",
			"readlink /proc/%s/exe", "readlink /proc/%s/cwd", "readlink /proc/%s/root", "readlink /proc/%s/ns/pid",
		} {
			if r := run(t, s, Bash(fmt.Sprintf(look, "1"))); r.OK() || len(r.Stdout) > 0 {
				t.Errorf("%s works: %s", look, r.Stdout)
			}
			outputOf(t, s, fmt.Sprintf(look, "$$"))
		}
	})
}

// Promises 77 to 80, 83, 84.
func TestLimits(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		const all = "for h in H S; do ulimit -$h -u; ulimit -$h -v; done; ulimit -n; ulimit -c"
		host := func(resource int) string {
			var rl unix.Rlimit
			if err := unix.Getrlimit(resource, &rl); err != nil {
				t.Fatal(err)
			}
			if rl.Cur == unix.RLIM_INFINITY {
				return "unlimited"
			}
			return fmt.Sprint(rl.Cur)
		}
		inherited := host(unix.RLIMIT_NOFILE) + " " + host(unix.RLIMIT_CORE)
		for _, tt := range []struct {
			name   string
			limits Limits
			want   string
		}{
			{"default", Limits{}, "1024 unlimited 1024 unlimited " + inherited},
			{"set", Limits{Processes: 50, AddressSpace: 1 << 30}, "50 1048576 50 1048576 " + inherited},
			{"files", Limits{OpenFiles: 100}, "1024 unlimited 1024 unlimited 100 " + host(unix.RLIMIT_CORE)},
		} {
			s := sandbox(t, Profile{Limits: tt.limits})
			if got := strings.Join(strings.Fields(outputOf(t, s, all)), " "); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
			r := run(t, s, Python("import resource as r\nprint(*r.getrlimit(r.RLIMIT_NPROC), *r.getrlimit(r.RLIMIT_AS))"))
			n := max(tt.limits.Processes, 0)
			if n == 0 {
				n = DefaultProcesses
			}
			as := tt.limits.AddressSpace
			if as == 0 {
				as = -1
			}
			if want := fmt.Sprintf("%d %d %d %d\n", n, n, as, as); string(r.Stdout) != want {
				t.Errorf("%s in Python: got %q, want %q; %s", tt.name, r.Stdout, want, r.Stderr)
			}
		}
		s := sandbox(t, Profile{Limits: Limits{Processes: Unlimited}})
		if got := outputOf(t, s, "ulimit -u"); got != host(unix.RLIMIT_NPROC) {
			t.Errorf("unlimited: %s", got)
		}
	})
}

// Promise 85: the limit on processes binds a guest whose user in the kernel is
// not root.
func TestForkBomb(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := Profile{Limits: Limits{Processes: 64}}
		if os.Geteuid() == 0 {
			p.HostUID = new(uint32(testutil.Nobody))
		}
		const bomb = `import os, signal
n = 0
try:
    while n < 200:
        if os.fork() == 0: signal.pause()
        n += 1
except BlockingIOError: pass
print(n)`
		r := run(t, sandbox(t, p), Python(bomb))
		var n int
		if _, err := fmt.Sscan(string(r.Stdout), &n); err != nil || n < 50 || n > 63 {
			t.Errorf("%d forks: %v %s", n, err, r.Stderr)
		}
		if os.Geteuid() != 0 {
			return
		}
		p.HostUID = nil // which the documentation warns of
		if r := run(t, sandbox(t, p), Python(bomb)); string(r.Stdout) != "200\n" {
			t.Errorf("for root in the kernel: %s %s", r.Stdout, r.Stderr)
		}
	})
}

// Promises 81, 82.
func TestAddressSpace(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		bomb := Python("try: bytearray(512 << 20)\nexcept MemoryError: print('caught')")
		if r := run(t, sandbox(t, Profile{Limits: Limits{AddressSpace: 256 << 20}}), bomb); !r.OK() || string(r.Stdout) != "caught\n" {
			t.Errorf("%d %q %s", r.ExitCode, r.Stdout, r.Stderr)
		}
		if r := run(t, sandbox(t, Profile{}), bomb); !r.OK() || len(r.Stdout) != 0 {
			t.Errorf("without a limit: %d %q %s", r.ExitCode, r.Stdout, r.Stderr)
		}
		// A limit that no interpreter could start under.
		tiny := sandbox(t, Profile{Limits: Limits{AddressSpace: 4 << 20}})
		if r := run(t, tiny, Python("print('up')")); string(r.Stdout) != "up\n" {
			t.Errorf("a tiny limit: %d %q %s", r.ExitCode, r.Stdout, r.Stderr)
		}
		if r := run(t, tiny, Command{Args: []string{"python3", "-c", "print('up')"}}); r.OK() {
			t.Error("Run of an interpreter is under the limit from its start, and this one started")
		}
	})
}

// Promise 96: no variable of ours but those of hatches reaches a guest.
// Promise 101: nothing of the host's environment does.
func TestEnvironment(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("SECRET", "canary")
		env := func(p Profile, c Command) string {
			c.Args = []string{"cat", "/proc/self/environ"}
			r := run(t, sandbox(t, p), c)
			return strings.ReplaceAll(strings.TrimSuffix(string(r.Stdout), "\x00"), "\x00", " ")
		}
		const path = "PATH=/usr/local/bin:/usr/bin:/bin"
		for _, tt := range []struct {
			profile Profile
			cmd     Command
			want    string
		}{
			{Profile{}, Command{}, path + " PWD=/workspace"},
			{Profile{Env: []string{"B=2", "A=1", "EMPTY="}}, Command{}, path + " B=2 A=1 EMPTY= PWD=/workspace"},
			{Profile{Env: []string{"A=1", "PATH=/bin"}}, Command{Env: []string{"A=3", "C=a=b"}}, "PATH=/bin A=3 C=a=b PWD=/workspace"},
			{Profile{Etc: &Etc{}}, Command{}, path + " HOME=/workspace PWD=/workspace"},
			{Profile{Etc: &Etc{Home: "/tmp"}}, Command{}, path + " HOME=/tmp PWD=/workspace"},
			{Profile{StubFiles: []string{"/etc/passwd"}}, Command{}, path + " PWD=/workspace PYTHONPATH=/run/postern/stubs"},
			{Profile{StubFiles: []string{"/etc/passwd"}, Env: []string{"PYTHONPATH=/x"}}, Command{}, path + " PYTHONPATH=/run/postern/stubs:/x PWD=/workspace"},
		} {
			if got := env(tt.profile, tt.cmd); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		}
		r := run(t, sandbox(t, Profile{Limits: Limits{AddressSpace: 1 << 30}}), Python("import os; print(sorted(os.environ))"))
		if got := string(r.Stdout); got != "['LC_CTYPE', 'PATH', 'PWD']\n" { // the first is Python's own
			t.Errorf("Python under a limit: %s%s", got, r.Stderr)
		}
	})
}

// Promise 132.
func TestDescriptors(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		// One that a careless program forgot to mark.
		fd, err := unix.Open("/", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 2048)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(high)
		s := sandbox(t, Profile{})
		const list = "import os\nfor fd in range(5000):\n  try: os.fstat(fd)\n  except OSError: continue\n  print(fd)"
		for name, c := range map[string]Command{
			"code":  Python(list),
			"argv":  {Args: []string{"python3", "-c", list}},
			"input": {Args: []string{"python3", "-c", list}, Input: []byte("x")},
		} {
			if got := string(run(t, s, c).Stdout); got != "0\n1\n2\n" {
				t.Errorf("%s: open are %q", name, got)
			}
		}
	})
}

// Promise 98, 130: no signal is blocked or ignored, and the session is the
// guest's own.
func TestSignalsAndSession(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		got := outputOf(t, s, "grep -E '^Sig(Blk|Ign)|^Groups|^NoNewPrivs|^Seccomp|^Cap' /proc/self/status; ps -o sid= -p $$ | tr -d ' '; cat /proc/self/setgroups")
		want := map[string]string{"SigBlk:": "0000000000000000", "SigIgn:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2", "Seccomp_filters:": "1"}
		for _, set := range []string{"Inh", "Prm", "Eff", "Bnd", "Amb"} {
			want["Cap"+set+":"] = "0000000000000000"
		}
		if os.Geteuid() == 0 {
			want["Groups:"] = ""
		}
		lines := strings.Split(got, "\n")
		for name, value := range want {
			found := false
			for _, l := range lines {
				if rest, ok := strings.CutPrefix(l, name); ok {
					found = true
					if strings.TrimSpace(rest) != value {
						t.Errorf("%s is %q, want %q", name, strings.TrimSpace(rest), value)
					}
				}
			}
			if !found {
				t.Errorf("no %s in:\n%s", name, got)
			}
		}
		if !strings.HasSuffix(got, "\n1\ndeny") {
			t.Errorf("the session is not the init's, or setgroups is allowed:\n%s", got)
		}
	})
}
