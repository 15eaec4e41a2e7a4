package streamhatch

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"fmt"
	"log/slog"

	"github.com/populationgenomics/postern-go/hatch/connector"
)

func TestTmpStress(t *testing.T) {
	h := serving(t, shell("head -c 200000000 /dev/zero; echo rc $? >> /tmp/sc/h/log"), Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	image, _ := connector.Image()
	path := filepath.Join(t.TempDir(), "c")
	os.WriteFile(path, image, 0o755)
	for i := range 150 {
		prog := "connect"
		cmd := exec.Command(path, h.SocketPath())
		if i%3 == 0 {
			prog = "socat"
			cmd = exec.Command("socat", "-u", "UNIX-CONNECT:"+h.SocketPath(), "STDOUT")
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.StdoutPipe()
		cmd.Start()
		n, err := io.Copy(struct{ io.Writer }{io.Discard}, out)
		werr := cmd.Wait()
		if n != 200000000 || werr != nil {
			fmt.Println(i, prog, n, err, werr, stderr.String())
		}
	}
}
