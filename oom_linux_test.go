package postern

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// Users' request 8: a command killed for lack of memory is said to be, and one
// that kills itself is not. The test moves a process into a cgroup of 200 MiB.
func TestOutOfMemory(t *testing.T) {
	if os.Getenv("POSTERN_TEST_OOM") != "" {
		s := sandbox(t, Profile{})
		if r := run(t, s, Bash("kill -KILL $$")); r.Reason != Signalled {
			t.Errorf("a kill: %v", r.Reason)
		}
		r := run(t, s, Python("x = []\nwhile True: x.append(b'x' * (10 << 20))"))
		if r.Reason != OutOfMemory || r.ExitCode != 137 || r.OK() {
			t.Errorf("out of memory: %v, %d", r.Reason, r.ExitCode)
		}
		if r := run(t, s, Bash("kill -KILL $$")); r.Reason != Signalled {
			t.Errorf("a kill afterwards: %v", r.Reason)
		}
		return
	}
	asRoot(t)
	group := memoryCgroup(t, 200<<20)
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs && exec /proc/%d/exe -test.v -test.run='^TestOutOfMemory$'", group, os.Getpid()))
	cmd.Env = append(os.Environ(), "POSTERN_TEST_OOM=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestOutOfMemory") {
		t.Errorf("%v\n%s", err, out)
	}
}

// memoryCgroup makes a cgroup with a limit, of whichever version there is.
func memoryCgroup(t testing.TB, limit int) string {
	t.Helper()
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, try := range []struct{ top, file string }{
			{"/sys/fs/cgroup/memory" + parts[2], "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
		} {
			dir := fmt.Sprintf("%s/postern-test-%d", strings.TrimSuffix(try.top, "/"), os.Getpid())
			if os.Mkdir(dir, 0o755) != nil {
				continue
			}
			t.Cleanup(func() { os.Remove(dir) })
			if os.WriteFile(dir+"/"+try.file, []byte(fmt.Sprint(limit)), 0) == nil {
				return dir
			}
		}
	}
	testutil.Missing(t, "no cgroup with a memory limit can be made here")
	return ""
}
