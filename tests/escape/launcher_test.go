//go:build linux

package escape

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

// A launcher that somebody installs set-user-ID refuses to run: CVE-2020-5291
// and CVE-2026-41163 were about one that did.
func TestSetUserIDLauncher(t *testing.T) {
	if !isRoot() {
		return // it takes root to install one
	}
	goTool := testutil.RequireTool(t, "go")
	dir, err := os.MkdirTemp("/tmp", "postern-escape-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	launcher := dir + "/postern-launch"
	build := exec.Command(goTool, "build", "-o", launcher, "../../cmd/postern-launch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	attempt := func(mode uint32, args ...string) (string, error) {
		if err := unix.Chmod(launcher, mode); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(launcher, args...)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testutil.Nobody, Gid: testutil.Nobody}}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for _, args := range [][]string{{"--ro-bind", "/", "/", "--unshare-user", "id", "-u"}, {"--hardened", "--", "id", "-u"}} {
		if out, err := attempt(0o4755, args...); err == nil || !strings.Contains(out, "setuid") && !strings.Contains(out, "set-user-ID") {
			t.Errorf("%s, set-user-ID root: %v, %s; want a refusal", args[0], err, out)
		}
		if out, err := attempt(0o755, args...); err != nil || out != "65534" {
			t.Errorf("%s, as itself: %v, %s; this attack proves nothing", args[0], err, out)
		}
	}
}
