//go:build original

package clients

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// The original's own tests pass with our bwrap where they do with bubblewrap's.
// They have time limits, which a busy machine does not keep.
func TestPosternOwnTests(t *testing.T) {
	for _, tool := range []string{"cc", "git", "unshare"} {
		testutil.RequireTool(t, tool)
	}
	l := setUp(t)
	testutil.EachUser(t, func(t *testing.T) {
		files := launching(t)
		theirs, ours := l.pytest(t, files)
		passes := 0
		for id, result := range theirs {
			if result == passed {
				passes++
			} else {
				t.Logf("with bubblewrap's bwrap: %s: %s", id, result)
			}
		}
		if passes < 150 {
			t.Fatalf("only %d tests pass with bubblewrap's bwrap", passes)
		}
		differ := differences(theirs, ours)
		// Many of these tests wait for things with a time limit. A
		// difference has to show again when nothing else runs.
		for range 2 {
			if len(differ) == 0 {
				break
			}
			t.Logf("once more: %v", differ)
			theirs, ours = l.theirs.pytest(t, differ)(), l.ours.pytest(t, differ)()
			differ = differences(theirs, ours)
		}
		for _, id := range differ {
			t.Errorf("%s:\nwith bubblewrap's bwrap: %s\nwith ours: %s", id, theirs[id], ours[id])
		}
	})
}

// launching are the files with tests that launch something.
func launching(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(fetched("postern/tests/test_*.py"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range found {
		if strings.Contains(readable(t, f), "Sandbox(") {
			files = append(files, "tests/"+filepath.Base(f))
		}
	}
	return files
}

const passed = "passed"

// pytest runs tests with both launchers at the same time.
func (l launchers) pytest(t *testing.T, tests []string) (theirs, ours map[string]string) {
	runTheirs, runOurs := l.theirs.pytest(t, tests), l.ours.pytest(t, tests)
	var wg sync.WaitGroup
	wg.Go(func() { theirs = runTheirs() })
	wg.Go(func() { ours = runOurs() })
	wg.Wait()
	return theirs, ours
}

// pytest returns what runs tests and returns the result of each.
func (l launcher) pytest(t *testing.T, tests []string) func() map[string]string {
	t.Helper()
	cmd := l.client(t, fetched("venv/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1")
	report := cmd.Dir + "/report.xml"
	cmd.Args = append(cmd.Args, "--junitxml="+report, "--basetemp="+cmd.Dir+"/t")
	cmd.Args = append(cmd.Args, tests...)
	cmd.Dir = fetched("postern")
	return func() map[string]string {
		said := l.called(t, func(launcher) string { return finish(cmd) })
		data, err := os.ReadFile(report)
		if err != nil {
			t.Errorf("pytest made no report: %v\n%s", err, said)
			return nil
		}
		return results(t, data)
	}
}

func results(t *testing.T, report []byte) map[string]string {
	type outcome struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var parsed struct {
		Cases []struct {
			File    string   `xml:"file,attr"`
			Name    string   `xml:"name,attr"`
			Failure *outcome `xml:"failure"`
			Error   *outcome `xml:"error"`
			Skipped *outcome `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(report, &parsed); err != nil {
		t.Errorf("%v in the report of pytest", err)
	}
	all := map[string]string{}
	for _, c := range parsed.Cases {
		result := passed
		switch {
		case c.Failure != nil:
			result = "failed: " + c.Failure.Message
		case c.Error != nil:
			result = "failed: " + c.Error.Message
		case c.Skipped != nil:
			result = "skipped: " + c.Skipped.Message
		}
		all[c.File+"::"+c.Name] = result
	}
	return all
}

// differences are the tests that end otherwise. How a failing one fails may
// differ from one time to the next.
func differences(theirs, ours map[string]string) []string {
	how := func(result string) string { how, _, _ := strings.Cut(result, ":"); return how }
	var differ []string
	for id, result := range theirs {
		if how(ours[id]) != how(result) {
			differ = append(differ, id)
		}
	}
	for id := range ours {
		if _, ok := theirs[id]; !ok {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	return differ
}

func readable(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
