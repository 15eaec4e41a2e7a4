package checkpoint_test

import (
	"os"
	"os/exec"
	"testing"
)

// The buckets' module is not part of this one, and would be forgotten.
func TestTheNestedModule(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err == nil {
		cmd := exec.Command(goTool, "mod", "download")
		cmd.Dir = "blobstore"
		err = cmd.Run()
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("cannot run in CI: ", err)
		}
		t.Skip("needs the go command and the module's dependencies: ", err)
	}
	cmd := exec.Command(goTool, "test", "./...")
	cmd.Dir = "blobstore"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
