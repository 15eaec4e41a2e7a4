package clients

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

//go:embed testdata/flatpak_client.sh
var flatpakClient string

// busLog is what the message bus says of itself.
var busLog = regexp.MustCompile(`(?m)^dbus-daemon\[.*\n`)

// Flatpak builds and runs an application with our bwrap as with bubblewrap's.
// It does not look for bwrap in PATH, but where FLATPAK_BWRAP says.
func TestFlatpak(t *testing.T) {
	for _, tool := range []string{"flatpak", "busybox", "dbus-run-session"} {
		testutil.RequireTool(t, tool)
	}
	l := setUp(t)
	testutil.EachUser(t, func(t *testing.T) {
		said := l.same(t, func(l launcher) string {
			return busLog.ReplaceAllString(finish(l.client(t, "dbus-run-session", "--", "sh", "-c", flatpakClient, "sh", l.bwrap())), "")
		})
		for _, want := range []string{"exit 5\n", "arguments: a b c\nin\n", "exit 7\n", "exit 137\n", "host\n", "/app/x can be written"} {
			if !strings.Contains(said, want) {
				t.Errorf("no %q in:\n%s", want, said)
			}
		}
	})
}
