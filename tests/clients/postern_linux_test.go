package clients

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

//go:embed testdata/postern_client.py
var posternClient string

// What the original's entry points return is the same with our bwrap.
func TestPostern(t *testing.T) {
	testutil.RequireTool(t, "cc")
	l := setUp(t)
	testutil.EachUser(t, func(t *testing.T) {
		said := l.same(t, func(l launcher) string {
			cmd := l.client(t, fetched("venv/bin/python"), "-c", posternClient, fetched("venv"))
			return regexp.MustCompile(`tmp[a-z0-9_]{8}`).ReplaceAllString(finish(cmd), "tmp")
		})
		for _, want := range []string{
			"exit status 0\n", "\nverify: None\n", "stdout='42\\n'", "(('stdout', b'ready\\n'), ProcResult(returncode=3, stdout='stopping\\n'",
			"Allowed b'ping'\\nDenied PERMISSION_DENIED", "ping\\n[Errno 101]", "[postern] timed out", "Can't find source path",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in:\n%s", want, said)
			}
		}
	})
}
