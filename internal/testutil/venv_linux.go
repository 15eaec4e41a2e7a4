package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

const venvEnv = "POSTERN_TEST_VENV"

// Venv returns a Python virtual environment with what tests/venv.sh puts there,
// for guests of every user. It is made once and kept: where POSTERN_TEST_VENV
// says, or in the cache directory of tests/install-tools.sh or of an
// unprivileged user. Call it before EachUser, which hands it on. Without one, the
// test fails in CI and is skipped elsewhere.
func Venv(t testing.TB) string {
	t.Helper()
	venv := os.Getenv(venvEnv)
	if os.Getenv(userEnv) != "" { // EachUser's parent has made it
		return venv
	}
	if venv == "" {
		cache := os.Getenv("POSTERN_TEST_CACHE")
		if cache == "" {
			cache = "/var/cache/postern" // which every user can reach
		}
		if _, err := os.Stat(filepath.Join(cache, "venv", ".complete")); err != nil && os.Geteuid() != 0 {
			user, err := os.UserCacheDir()
			if err != nil {
				Missing(t, "no place for a Python environment: "+err.Error())
			}
			cache = filepath.Join(user, "postern")
		}
		venv = filepath.Join(cache, "venv")
	}
	_, here, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(here), "..", "..", "tests", "venv.sh")
	build := exec.Command(script, venv)
	// A Python of the system, which guests of every user can execute.
	build.Env = append(os.Environ(), "PATH=/usr/bin:"+os.Getenv("PATH"))
	if out, err := build.CombinedOutput(); err != nil {
		Missing(t, "no Python environment: tests/venv.sh "+venv+": "+err.Error()+"\n"+string(out))
	}
	t.Setenv(venvEnv, venv)
	return venv
}
