package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(testutil.Main(m)) }

// A launcher is a directory with nothing in it but a program called bwrap.
type launcher string

func (l launcher) bwrap() string { return filepath.Join(string(l), "bwrap") }

// launchers are what clients are given: bubblewrap's, ours, and one that
// launches nothing.
type launchers struct{ theirs, ours, broken launcher }

const (
	launchersEnv = "POSTERN_TEST_LAUNCHERS"
	clientsEnv   = "POSTERN_TEST_CLIENTS"
)

// setUp makes the launchers and fetches the clients, for every user. Call it
// before EachUser, which hands both on.
func setUp(t *testing.T) launchers {
	t.Helper()
	dir := os.Getenv(launchersEnv)
	if dir == "" {
		dir = makeLaunchers(t)
		t.Setenv(launchersEnv, dir)
		t.Setenv(clientsEnv, fetch(t))
	}
	return launchers{launcher(dir + "/theirs"), launcher(dir + "/ours"), launcher(dir + "/broken")}
}

func makeLaunchers(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-clients-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{dir, dir + "/theirs", dir + "/ours", dir + "/broken"} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", dir+"/ours/bwrap", "../../cmd/postern-launch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reference := os.Getenv("POSTERN_BWRAP_NEW")
	if reference == "" {
		reference = filepath.Join(cache(), "bwrap-0.13.1", "bwrap")
	}
	theirs, err := os.ReadFile(reference)
	if err != nil {
		testutil.Missing(t, "no bubblewrap 0.13.1 (tests/install-tools.sh gets it): "+err.Error())
	}
	if err := os.WriteFile(dir+"/theirs/bwrap", theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	broken := "#!/bin/sh\necho this bwrap is broken >&2\nexit 1\n"
	if err := os.WriteFile(dir+"/broken/bwrap", []byte(broken), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func cache() string {
	if dir := os.Getenv("POSTERN_TEST_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/postern"
}

func fetch(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cache(), "clients")
	get := exec.Command("./fetch.sh", dir)
	// A Python of the system, which every user can execute.
	get.Env = append(os.Environ(), "PATH=/usr/bin:"+os.Getenv("PATH"))
	if out, err := get.CombinedOutput(); err != nil {
		testutil.Missing(t, fmt.Sprintf("tests/clients/fetch.sh %s: %v\n%s", dir, err, out))
	}
	return dir
}

// fetched is the path of something that fetch.sh got.
func fetched(name string) string { return filepath.Join(os.Getenv(clientsEnv), name) }

// client makes a client find this launcher's bwrap. Its temporary files, its
// home and its working directory are new, and short enough for sockets.
func (l launcher) client(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + string(l) + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir,
		"LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
	}
	return cmd
}

// finish runs a client and returns what it said, without the names that are
// different every time.
func finish(cmd *exec.Cmd) string {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		return err.Error()
	}
	said := fmt.Sprintf("%v\nstdout:\n%sstderr:\n%s", cmd.ProcessState, stdout.String(), stderr.String())
	return strings.ReplaceAll(said, cmd.Dir, "$DIR")
}

// same runs a client with bubblewrap's bwrap and with ours, and wants the same
// of both. It returns what that was.
func (l launchers) same(t *testing.T, run func(launcher) string) string {
	t.Helper()
	theirs := l.theirs.called(t, run)
	if ours := l.ours.called(t, run); theirs != ours {
		t.Errorf("with our bwrap (+) another result than with bubblewrap's (-):\n%s", cmp.Diff(theirs, ours))
	}
	// A client that came to the same result without the bwrap it was given
	// would have called another one, or none.
	if run(l.broken) == theirs {
		t.Error("the client makes no use of bwrap")
	}
	return theirs
}

// called runs a client, which has to execute this launcher's bwrap.
func (l launcher) called(t *testing.T, run func(launcher) string) string {
	t.Helper()
	events, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer unix.Close(events)
	if _, err := unix.InotifyAddWatch(events, l.bwrap(), unix.IN_OPEN); err != nil {
		t.Error(err)
	}
	result := run(l)
	if n, _ := unix.Read(events, make([]byte, 4096)); n <= 0 {
		t.Errorf("%s was not executed; the client came to:\n%s", l.bwrap(), result)
	}
	return result
}
