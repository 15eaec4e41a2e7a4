//go:build linux

package pidone_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

func TestExitStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for code := range 256 {
			if code%8 != 0 && code != 1 && code != 255 && code != 127 {
				continue
			}
			if r := guest.Run(t, guest.Shell(fmt.Sprint("exit ", code))); r.ExitCode != code || r.Signal != 0 || r.Killed {
				t.Errorf("exit %d: %+v", code, r)
			}
		}
		for sig := unix.Signal(1); sig <= 64; sig++ {
			switch sig { // these do not end a process
			case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, 32, 33:
				continue
			}
			s := guest.ProbeSpec(t, dieProbe, []string{fmt.Sprint(int(sig))})
			s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_CORE}}
			if r := guest.Run(t, s); r.Signal != sig || r.ExitCode != 128+int(sig) || r.Killed {
				t.Errorf("signal %d: %+v", sig, r)
			}
		}
	})
}

// dieProbe resets and raises a signal with raw system calls: the runtime has
// handlers and a mask of its own.
var dieProbe = guest.Probe("die", func(args []string) {
	var sig int
	fmt.Sscan(args[0], &sig)
	execShell("kill -" + args[0] + " $$; exit 99")
})

func execShell(script string) {
	panic(unix.Exec("/bin/sh", []string{"sh", "-c", script}, []string{"PATH=/usr/bin:/bin"}))
}

// A command that cannot be executed has the status and the message a shell
// would give it.
func TestCommandsThatCannotBeExecuted(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		write("plain", "echo plain\n", 0o644)
		write("garbage", "\x7fELF garbage", 0o755)
		write("interpreted", "#!/missing/interpreter\n", 0o755)
		write("empty", "", 0o755)
		if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
			t.Fatal(err)
		}
		for _, init := range []bool{true, false} {
			for _, c := range []struct {
				path   string
				errno  unix.Errno
				status int
				text   string
			}{
				{"/nowhere", unix.ENOENT, 127, "postern: /nowhere: No such file or directory\n"},
				{"nowhere", unix.ENOENT, 127, "postern: nowhere: No such file or directory\n"},
				{"/usr", unix.EACCES, 126, "postern: /usr: Permission denied\n"},
				{"/b/plain", unix.EACCES, 126, "postern: /b/plain: Permission denied\n"},
				{"/b/plain/below", unix.ENOTDIR, 127, "postern: /b/plain/below: Not a directory\n"},
				{"/b/interpreted", unix.ENOENT, 127, "postern: /b/interpreted: No such file or directory\n"},
				{"/b/loop", unix.ELOOP, 126, "postern: /b/loop: Too many levels of symbolic links\n"},
				{"/" + strings.Repeat("x", 300), unix.ENAMETOOLONG, 126, "postern: /" + strings.Repeat("x", 300) + ": File name too long\n"},
			} {
				s := guest.Spec([]string{c.path}, mounts.Bind{Source: dir, Dest: "/b"})
				s.Init = init
				r := guest.Run(t, s)
				if r.ExecErr != c.errno || r.ExitCode != c.status || r.Out != c.text || r.Signal != 0 || r.Killed {
					t.Errorf("Init %v, %s: %+v", init, c.path, r)
				}
			}
		}
	})
}

// A script without an interpreter line is for the shell, as with execvp(3).
func TestScriptWithoutInterpreter(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		script := func(text string) mounts.Op { return mounts.File{Dest: "/s", Data: text, Perm: mounts.Perm(0o755)} }
		for _, c := range []struct{ path, text, want string }{
			{"/s", "echo \"$0 $*\"", "/s a b c"},
			{"s", "echo \"$0 $*\"", "/s a b c"},
			{"/s", "#!/bin/sh\necho \"$0 $*\"", "/s a b c"},
			{"/s", "#!/bin/echo opt\n", "opt /s a b c"},
			{"/s", "", ""},
		} {
			s := guest.Spec([]string{"zero", "a", "b c"}, script(c.text))
			s.Path = c.path
			s.Env = []string{"PATH=/nowhere:/"}
			want := c.want
			if c.path == "s" {
				want = "//s a b c"
			}
			if got := guest.MustOutput(t, s); got != want {
				t.Errorf("%s with %q: %q, want %q", c.path, c.text, got, want)
			}
		}
		s := guest.Spec([]string{"/s"}, script("echo x")) // without a shell there
		s.Mounts.Ops = []mounts.Op{script("echo x")}
		if r := guest.Run(t, s); r.ExecErr != unix.ENOEXEC || r.ExitCode != 126 || r.Out != "postern: /s: Exec format error\n" {
			t.Errorf("without a shell: %+v", r)
		}
	})
}

// The search follows execvp(3).
func TestSearch(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		say := func(dest, what string, mode os.FileMode) mounts.Op {
			return mounts.File{Dest: dest, Data: "#!/bin/sh\necho " + what, Perm: mounts.Perm(mode)}
		}
		ops := []mounts.Op{
			say("/one/both", "one", 0o755), say("/two/both", "two", 0o755), say("/two/denied", "two", 0o755), say("/one/denied", "one", 0o644),
			say("/one/only", "one", 0o644), say("/here/cmd", "here", 0o755), say("/usr-file", "x", 0o644), say("/one/dir/x", "x", 0o755), say("/two/dir", "two", 0o755),
			say("/bin-default", "x", 0o755),
		}
		for _, c := range []struct {
			name, path, dir, want string
			status                int
		}{
			{"both", "PATH=/one:/two", "/", "one\n", 0},
			{"both", "PATH=/two:/one", "/", "two\n", 0},
			{"both", "PATH=/nowhere:/usr-file:/two", "/", "two\n", 0}, // ENOENT and ENOTDIR go on
			{"denied", "PATH=/one:/two", "/", "two\n", 0},             // as EACCES does,
			{"dir", "PATH=/one:/two", "/", "two\n", 0},
			{"only", "PATH=/one:/two", "/", "postern: only: Permission denied\n", 126}, // but it is remembered
			{"only", "PATH=/two:/nowhere", "/", "postern: only: No such file or directory\n", 127},
			{"cmd", "PATH=", "/here", "here\n", 0}, // an empty element is the working directory
			{"cmd", "PATH=/one:", "/here", "here\n", 0},
			{"cmd", "PATH=:/one", "/here", "here\n", 0},
			{"cmd", "PATH=/one::/two", "/here", "here\n", 0},
			{"cmd", "PATH=/one:/two", "/here", "postern: cmd: No such file or directory\n", 127},
			{"cmd", "PATH=.", "/here", "here\n", 0},
			{"./cmd", "PATH=/one", "/here", "here\n", 0}, // a slash means no search
			{"here/cmd", "PATH=/one", "/", "here\n", 0},
			{"true", "NOPATH=1", "/", "", 0}, // without PATH the C library's default
			{"both", "NOPATH=1", "/", "postern: both: No such file or directory\n", 127},
			{"both", "PATH=/two\nPATH=/one", "/", "two\n", 0}, // the first PATH counts
		} {
			s := guest.Spec([]string{c.name}, ops...)
			s.Env, s.Dir = strings.Split(c.path, "\n"), c.dir
			if r := guest.Run(t, s); r.Out != c.want || r.ExitCode != c.status {
				t.Errorf("%s with %s in %s: %+v, want %q", c.name, c.path, c.dir, r, c.want)
			}
		}
	})
}

func TestArgvAndEnvironmentArriveVerbatim(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		odd := []string{"", " ", "a\nb", "\"'\\$`", "\xff\xfe", "ünï", strings.Repeat("long", 10), "-n", "--"}
		s := guest.ProbeSpec(t, printProbe, odd)
		s.Args[0] = "any name"
		s.Env = append(s.Env, "EMPTY=", "ODD=a=b\n\xff")
		want := fmt.Sprintf("%q %q", odd, s.Env)
		if got := guest.MustOutput(t, s); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

var printProbe = guest.Probe("print", func(args []string) { fmt.Printf("%q %q\n", args, os.Environ()) })

func TestEveryLimit(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for resource := range 16 {
			var own unix.Rlimit
			if err := unix.Getrlimit(resource, &own); err != nil {
				t.Fatal(err)
			}
			value := min(uint64(1000+resource), own.Max)
			switch resource {
			case unix.RLIMIT_AS, unix.RLIMIT_DATA, unix.RLIMIT_STACK, unix.RLIMIT_RSS:
				value = min(1<<33+4096*uint64(resource), own.Max) // enough to run
			case unix.RLIMIT_NICE, unix.RLIMIT_RTPRIO:
				value = 0
			}
			for _, init := range []bool{true, false} {
				s := guest.ProbeSpec(t, limitProbe, []string{fmt.Sprint(resource)})
				s.Init = init
				s.Limits = []pidone.Limit{{Resource: resource, Soft: value / 2, Hard: value}}
				if resource == unix.RLIMIT_NOFILE { // the Go runtime raises the soft limit
					s.Limits[0].Soft = value
				}
				want := fmt.Sprintf("%d %d", s.Limits[0].Soft, value)
				if got := guest.MustOutput(t, s); got != want {
					t.Errorf("Init %v, %s: %s, want %s", init, pidone.LimitName(resource), got, want)
				}
			}
		}
	})
}

var limitProbe = guest.Probe("limit", func(args []string) {
	var resource int
	fmt.Sscan(args[0], &resource)
	var rl unix.Rlimit
	if err := unix.Getrlimit(resource, &rl); err != nil {
		panic(err)
	}
	fmt.Println(rl.Cur, rl.Max)
})

// The limit on processes holds for whoever has no special rights.
func TestProcessLimitHolds(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("the kernel does not limit root")
		}
		s := guest.ProbeSpec(t, forkProbe, nil)
		s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_NPROC, Soft: 60, Hard: 60}}
		if got := guest.MustOutput(t, s); got != "resource temporarily unavailable" {
			t.Errorf("%q", got)
		}
	})
}

var forkProbe = guest.Probe("fork", func([]string) {
	for range 200 {
		if _, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{}); err != nil {
			fmt.Println(err.(*os.PathError).Err)
			return
		}
	}
	fmt.Println("no limit")
})

// Limits bind the program, not the init.
func TestLimitsSpareTheInit(t *testing.T) {
	s := guest.Shell("sed -n 's/Max cpu time *//p; s/Max open files *//p' /proc/1/limits || echo closed; ulimit -t")
	s.Limits = []pidone.Limit{{Resource: unix.RLIMIT_CPU, Soft: 7, Hard: 7}}
	r := guest.Run(t, s)
	if !strings.HasSuffix(r.Out, "7\n") {
		t.Errorf("%+v", r)
	}
	if strings.HasPrefix(r.Out, "7 ") {
		t.Errorf("the init has the limit too: %q", r.Out)
	}
}
