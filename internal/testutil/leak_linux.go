package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Main runs a package's tests and then fails the run if they left anything
// behind: a descriptor, a goroutine, a child process, a mount or a temporary
// file of postern's. Call it from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testutil.Main(m)) }
func Main(m *testing.M) int {
	tmp, err := privateTemp()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tmp)
	before := observe()
	code := m.Run()
	if selfDir != "" {
		os.RemoveAll(selfDir)
	}
	if code != 0 {
		return code
	}
	if left := settle(before); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests left behind:\n%s\n", strings.Join(left, "\n"))
		return 1
	}
	return 0
}

// privateTemp gives this process a directory for its temporary files, where
// other packages' tests, which run at the same time, leave none.
func privateTemp() (string, error) {
	dir, err := os.MkdirTemp("", "postern-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}

// NoLeak fails the test if f leaves anything behind.
func NoLeak(t testing.TB, f func()) {
	t.Helper()
	before := observe()
	f()
	for _, l := range settle(before) {
		t.Errorf("left behind: %s", l)
	}
}

// A state is what can leak.
type state struct {
	fds, children, mounts, files []string
	goroutines                   int
}

func observe() state {
	return state{fds(), children(), lines("/proc/self/mountinfo"), tempFiles(), runtime.NumGoroutine()}
}

// settle returns what there is more of than before. Ends of processes and
// goroutines take a moment to show, so it looks again until a deadline.
func settle(before state) []string {
	for deadline := time.Now().Add(10 * time.Second); ; {
		left := before.left(observe())
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		runtime.GC()
		runtime.Gosched()
		time.Sleep(5 * time.Millisecond)
	}
}

func (b state) left(now state) []string {
	var left []string
	for _, k := range []struct {
		what     string
		was, are []string
	}{{"descriptor", b.fds, now.fds}, {"child process", b.children, now.children}, {"mount", b.mounts, now.mounts}, {"file", b.files, now.files}} {
		for _, e := range k.are {
			if !slices.Contains(k.was, e) {
				left = append(left, k.what+" "+e)
			}
		}
	}
	if now.goroutines > b.goroutines {
		var s strings.Builder
		pprof.Lookup("goroutine").WriteTo(&s, 1)
		left = append(left, fmt.Sprintf("%d goroutines, there were %d:\n%s", now.goroutines, b.goroutines, s.String()))
	}
	return left
}

// fds lists open descriptors but those of the runtime's own poller.
func fds() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.Contains(target, "eventpoll") || strings.Contains(target, "eventfd") {
			continue
		}
		out = append(out, e.Name()+" "+target)
	}
	return out
}

func children() []string {
	var out []string
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for pid := range strings.FieldsSeq(string(b)) {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			out = append(out, pid+" "+strings.TrimSpace(string(comm)))
		}
	}
	return out
}

func lines(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// tempFiles lists temporary files of postern's that belong to this user.
func tempFiles() []string {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), "postern-*"))
	return slices.DeleteFunc(found, func(p string) bool {
		var st unix.Stat_t
		return p == selfDir || unix.Lstat(p, &st) != nil || int(st.Uid) != os.Geteuid()
	})
}
