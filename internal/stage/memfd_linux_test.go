package stage

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSealedImageCannotChange(t *testing.T) {
	const content = "contents"
	f := sealed(t, []byte(content))
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		t.Fatal(err)
	}
	// With F_SEAL_EXEC, which the kernel may add, the list is longer.
	const want = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if seals&want != want {
		t.Errorf("seals %#x, want %#x", seals, want)
	}
	for name, change := range map[string]func(*os.File) error{
		"write":    func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"append":   func(f *os.File) error { _, err := f.WriteAt([]byte("x"), int64(len(content))); return err },
		"truncate": func(f *os.File) error { return f.Truncate(1) },
		"grow":     func(f *os.File) error { return f.Truncate(100) },
		"map": func(f *os.File) error {
			m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_WRITE, unix.MAP_SHARED)
			if err == nil {
				unix.Munmap(m)
			}
			return err
		},
		"unseal": func(f *os.File) error {
			_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
			return err
		},
	} {
		if err := change(f); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", name, err)
		}
		if err := change(unsealed(t, content)); err != nil {
			t.Errorf("%s without seals: %v", name, err)
		}
	}
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, 100)); string(got) != content || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 || err != nil {
		t.Errorf("descriptor flags %#x, %v: other children inherit it", flags, err)
	}
}

// unsealed returns what Seal would if it did not seal.
func unsealed(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "unsealed")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSealFails(t *testing.T) {
	for name, bad := range map[string]string{"long": strings.Repeat("x", 250), "NUL": "a\x00b"} {
		f, err := Seal(name, nil)
		if err != nil {
			t.Fatalf("a good name: %v", err)
		}
		f.Close()
		if _, err := Seal(bad, nil); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s name: %v, want EINVAL", name, err)
		}
	}
}
