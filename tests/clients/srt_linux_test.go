package clients

import (
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

//go:embed testdata/srt_client.sh
var srtClient string

// Anthropic's srt confines commands with our bwrap as it does with bubblewrap's.
func TestSrt(t *testing.T) {
	for _, tool := range []string{"socat", "rg", "bash"} {
		testutil.RequireTool(t, tool)
	}
	l := setUp(t)
	testutil.EachUser(t, func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
		defer server.Close()
		port := strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port)
		said := l.same(t, func(l launcher) string {
			cmd := l.client(t, "sh", "-c", srtClient, "sh", fetched("node_modules/.bin/srt"), port)
			cmd.Env[0] += ":" + fetched("venv/bin") // a Node.js that is new enough
			return finish(cmd)
		})
		for _, want := range []string{
			"a  b $HOME it's\nexit 0", "out\nexit 7", "outside: Read-only file system", "work/protected/x: Read-only file system", "b'reached'\n", "Operation not permitted",
			"HTTP Error 403", "in\nexit 3",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in:\n%s", want, said)
			}
		}
	})
}
