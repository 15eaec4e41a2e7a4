package postern

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// pythonMain is where the guest finds the code of a RunPython.
const pythonMain = "/run/postern/python/main.py"

// Promises 18 to 22: RunPython is "python -u FILE". Each piece of code is run
// by the host's interpreter as well and must do the same.
func TestPythonIsPlainPython(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		plain := sandbox(t, Profile{})
		limited := sandbox(t, Profile{Limits: Limits{AddressSpace: 4 << 30}})
		for name, code := range map[string]string{
			"empty":             "",
			"print":             "print('hello')",
			"main":              "print(__name__, __spec__, __doc__, sorted(globals()))",
			"docstring":         "'''doc'''\nprint(__doc__)",
			"future":            "from __future__ import annotations\ndef f(x: undefined): pass\nprint(f.__annotations__)",
			"encoding":          "# -*- coding: latin-1 -*-\nprint('ok')",
			"exit":              "import sys; sys.exit()",
			"exit None":         "raise SystemExit(None)",
			"exit int":          "raise SystemExit(9)",
			"exit message":      "import sys; sys.exit('a message')",
			"exit object":       "raise SystemExit([1])",
			"os._exit":          "import os; os._exit(4)",
			"traceback":         "def f(x):\n    return 1 / x\n\nf(0)",
			"chained":           "try:\n    1/0\nexcept Exception:\n    raise KeyError('x')",
			"group":             "raise ExceptionGroup('g', [ValueError(1)])",
			"syntax error":      "print(1)\ndef f(:\n",
			"interrupt":         "raise KeyboardInterrupt",
			"atexit":            "import atexit; atexit.register(print, 'bye'); 1/0",
			"excepthook":        "import sys\nsys.excepthook = lambda t, v, tb: print(t, v, tb.tb_lineno, tb.tb_next)\n1/0",
			"print_stack":       "import traceback; traceback.print_stack()",
			"inspect":           "import inspect\ndef f(): return 42\nprint(inspect.getsource(f), len(inspect.stack()))",
			"stdin":             "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())",
			"argv":              "import sys; print(len(sys.argv), sys.argv[0] == __file__)",
			"unbuffered":        "import sys; print(sys.flags.unbuffered, sys.stdout.write_through)",
			"thread":            "import threading\nt = threading.Thread(target=lambda: 1/0, name='t'); t.start(); t.join()",
			"multiprocessing":   "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    m.set_start_method('spawn')\n    with m.Pool(2) as p: print(p.map(f, [1, 2, 3]))",
			"pickle":            "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))))",
			"no newline at end": "if True:\n    print('x')",
			"unicode":           "print('\u00e9\u4e2d')",
			"signal death":      "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
			"warning":           "import warnings; warnings.warn('careful')",
			"deep recursion":    "import sys; sys.setrecursionlimit(50)\ndef f(): f()\ntry: f()\nexcept RecursionError as e: print('caught')",
		} {
			t.Run(name, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "main.py")
				if err := os.WriteFile(file, []byte(code), 0o644); err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command(systemPython(t), "-u", file)
				cmd.Env = []string{"PATH=" + DefaultPath, "TMPDIR=/tmp"}
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, _ := cmd.Output()
				wantCode := cmd.ProcessState.ExitCode()
				if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
					wantCode = 128 + int(ws.Signal())
				}
				wantOut := strings.ReplaceAll(string(out), file, pythonMain)
				wantErr := strings.ReplaceAll(stderr.String(), file, pythonMain)
				for _, s := range []*Sandbox{plain, limited} {
					r := run(t, s, Python(code))
					if string(r.Stdout) != wantOut || string(r.Stderr) != wantErr || r.ExitCode != wantCode {
						t.Errorf("got  %d\n%s\n%s\nwant %d\n%s\n%s", r.ExitCode, r.Stdout, r.Stderr, wantCode, wantOut, wantErr)
					}
				}
			})
		}
	})
}

// systemPython is the interpreter a guest has too.
func systemPython(t testing.TB) string {
	t.Helper()
	const path = "/usr/bin/python3"
	if _, err := os.Stat(path); err != nil {
		testutil.Missing(t, err.Error())
	}
	return path
}

// Promise 35: code of any size, that no list of processes shows.
func TestPythonCodeIsHidden(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		code := "x = '''" + strings.Repeat("secret line\n", 3<<20) + "'''\nprint(len(x))"
		if r := run(t, s, Python(code)); string(r.Stdout) != fmt.Sprintln(12*3<<20) {
			t.Errorf("%d bytes of code: %d %.100q %.1000s", len(code), r.ExitCode, r.Stdout, r.Stderr)
		}
		p := start(t, s, Python("canary = 1\nprint('ready', flush=True)\nimport time; time.sleep(1000)"))
		await(t, p, "ready")
		out, err := exec.Command("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'").Output()
		if strings.Contains(string(out), "canary") {
			t.Errorf("the code shows: %v", err)
		}
		if !strings.Contains(string(out), pythonMain) {
			t.Error("the control: the interpreter does not show")
		}
	})
}

func TestPythonArguments(t *testing.T) {
	s := sandbox(t, Profile{})
	if r := run(t, s, Python("import sys; print(sys.argv[1:])", "a", "-b", "c d")); string(r.Stdout) != "['a', '-b', 'c d']\n" {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
	if r := run(t, sandbox(t, Profile{Python: "no-such-python"}), Python("x")); r.ExitCode != 127 {
		t.Errorf("without an interpreter: %d", r.ExitCode)
	}
	if r := run(t, sandbox(t, Profile{Python: "/usr/bin/python3"}), Python("print('absolute')")); string(r.Stdout) != "absolute\n" {
		t.Errorf("%d %s", r.ExitCode, r.Stderr)
	}
}

// Promises 7, 91: the Python of a rootfs.
func TestPythonOfARootfs(t *testing.T) {
	root := reachable(t, t.TempDir())
	makeRoot(t, root)
	out, err := exec.Command(systemPython(t), "-c", "import sys, sysconfig, os; print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		t.Fatal(err)
	}
	var python, stdlib string
	if _, err := fmt.Sscan(string(out), &python, &stdlib); err != nil {
		t.Fatal(err)
	}
	addProgram(t, root, python, "/usr/bin/rootpython")
	for _, args := range [][]string{{"mkdir", "-p", root + filepath.Dir(stdlib)}, {"cp", "-r", stdlib, root + stdlib}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	r := run(t, sandbox(t, Profile{Rootfs: root, Python: "rootpython"}), Python("import sys, json, os; print(sys.executable, os.listdir('/usr/share'))"))
	if string(r.Stdout) != "/usr/bin/rootpython ['mine']\n" {
		t.Errorf("%d %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
}

// Promises 125, 167, 168: a virtual environment at its own path, below /tmp too.
func TestVenv(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		if !strings.HasPrefix(dir, "/tmp/") {
			t.Fatalf("%s is not below /tmp", dir)
		}
		venv := filepath.Join(dir, "venv")
		if out, err := exec.Command("python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Symlink(venv, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		site, err := filepath.Glob(venv + "/lib/python3*/site-packages")
		if err != nil || len(site) != 1 {
			t.Fatal(site, err)
		}
		os.WriteFile(site[0]+"/packaged.py", []byte("x = 'from the venv'"), 0o644)
		base := Profile{RequiredBinds: []Bind{{Host: "/usr/share", Guest: "/extra"}}, Env: []string{"A=b"}}
		p, err := base.WithVenv(filepath.Join(dir, "link"))
		if err != nil {
			t.Fatal(err)
		}
		if len(base.RequiredBinds) != 1 || p.Python != venv+"/bin/python" || p.Env[0] != "A=b" {
			t.Errorf("base %v, with venv %v", base, p)
		}
		s := sandbox(t, p)
		r := run(t, s, Python("import sys, packaged; print(sys.prefix, packaged.x)"))
		if string(r.Stdout) != venv+" from the venv\n" {
			t.Errorf("%d %s%s", r.ExitCode, r.Stdout, r.Stderr)
		}
		if r := run(t, s, Bash("echo > "+venv+"/new")); !strings.Contains(string(r.Stderr), "Read-only") {
			t.Errorf("writing to it: %s", r.Stderr)
		}
		if _, err := (Profile{}).WithVenv(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no directory: %v", err)
		}
		if _, err := (Profile{}).WithVenv(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "bin/python") {
			t.Errorf("no environment: %v", err)
		}
	})
}

// An interpreter outside the system's directories comes along, found by the
// names the links have, and nothing else of where it is.
func TestVenvOfAnotherPython(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"real/bin", "real/lib", "real/secrets", "venv/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, testutil.RequireTool(t, "bash"), dir+"/real/bin/python3.99")
	for from, to := range map[string]string{"real/bin/python3": "python3.99", "alias": "real", "venv/bin/python3": dir + "/alias/bin/python3", "venv/bin/python": "python3"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Profile{}.WithVenv(dir + "/venv")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range p.RequiredBinds {
		got = append(got, strings.TrimPrefix(b.Host, dir))
	}
	if want := "/venv /alias/bin /alias/lib /real/bin /real/lib"; strings.Join(got, " ") != want {
		t.Errorf("binds %v, want %s", got, want)
	}
	s := sandbox(t, p)
	if r := run(t, s, Command{Args: []string{p.Python, "-c", "echo " + dir + "/real/*"}}); string(r.Stdout) != dir+"/real/bin "+dir+"/real/lib\n" {
		t.Errorf("%d %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
}

// Promises 168, 169, with packages of the real world.
func TestRealVenv(t *testing.T) {
	p, err := Profile{}.WithVenv(realVenv(t))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, sandbox(t, p), Python(`import pandas, grpc, sys
print(pandas.DataFrame({"a": [1, 2, 3]}).a.sum(), grpc.StatusCode.OK.name, sys.prefix != sys.base_prefix)
grpc.insecure_channel("unix:/run/postern/hatch.sock")`))
	if string(r.Stdout) != "6 OK True\n" || !r.OK() {
		t.Errorf("%d %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
}

// realVenv makes the environment that several packages' tests share.
func realVenv(t testing.TB) string {
	t.Helper()
	testutil.RequireTool(t, "python3")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "postern-go", "venv")
	if out, err := exec.Command("tests/venv.sh", dir).CombinedOutput(); err != nil {
		testutil.Missing(t, fmt.Sprintf("the virtual environment could not be made: %v\n%s", err, out))
	}
	return dir
}
