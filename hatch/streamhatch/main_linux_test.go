package streamhatch

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
)

// The numbers in comments like "promise 203" are those of the list of promises
// that the Python original makes, which this package keeps.

func TestMain(m *testing.M) {
	guest.Main()
	os.Exit(testutil.Main(m))
}

// forever is a grace or a timeout that a test does not wait for.
const forever = time.Hour

// newHatch makes a hatch, from which the test must not leak.
func newHatch(t testing.TB, handler Handler, cfg Config) *Hatch {
	t.Helper()
	hatchtest.NoLeaks(t)
	h, err := New(handler, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// serving is newHatch, with a run until the end of the test.
func serving(t testing.TB, handler Handler, cfg Config) *Hatch {
	t.Helper()
	h := newHatch(t, handler, cfg)
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return h
}

// dial connects, as soon as the backlog has room.
func dial(t testing.TB, h *Hatch) *net.UnixConn {
	t.Helper()
	var c *net.UnixConn
	hatchtest.Eventually(t, "there is room in the backlog", func() bool {
		var err error
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: h.SocketPath(), Net: "unix"})
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly this.
func expect(t testing.TB, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

// expectEnd reads until the end of the stream, which must be a clean one.
func expectEnd(t testing.TB, c io.Reader, want string) {
	t.Helper()
	if got, err := io.ReadAll(c); err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q and the end", got, err, want)
	}
}

// over reads until the stream is over, in whichever way.
func over(c io.Reader) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// shell is a command that runs a script with only the defaults.
func shell(script string) *Command { return Exec("sh", "-c", script) }

// probeCommand runs a function of this test program.
func probeCommand(t testing.TB, name string, args ...string) *Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Command{Args: append([]string{exe}, args...), Env: []string{guest.ProbeEnv(name), "PATH=" + DefaultPath}}
}

// alive counts the processes that have this word in their command line.
func alive(t testing.TB, word string) int {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range procs {
		if cmdline, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && strings.Contains(string(cmdline), word) {
			n++
		}
	}
	return n
}

func entries(t testing.TB, log *hatchtest.Log, level slog.Level, msg string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for _, e := range log.Entries(t, level) {
		if e["msg"] == msg {
			found = append(found, e)
		}
	}
	return found
}
