//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package workspace

import "os"

// No Workspace can be opened here, so nothing below openRoot is ever reached.

type resolver struct{}

func openRoot(string) (int, *resolver, error) { return -1, nil, ErrUnsupported }

func (*resolver) open(int, string, how) (int, error)           { return -1, ErrUnsupported }
func (*resolver) openFile(int, string, how) (int, stat, error) { return -1, stat{}, ErrUnsupported }
func (*resolver) openListed(int, string) (int, stat, error)    { return -1, stat{}, ErrUnsupported }
func openParent(int) (int, error)                              { return -1, ErrUnsupported }
func statFD(int) (stat, error)                                 { return stat{}, ErrUnsupported }
func statAt(int, string) (stat, error)                         { return stat{}, ErrUnsupported }
func readNames(int, int) ([]dirent, error)                     { return nil, ErrUnsupported }
func readFD(int, []byte) (int, error)                          { return 0, ErrUnsupported }
func writeFD(int, []byte) (int, error)                         { return 0, ErrUnsupported }
func truncateFD(int) error                                     { return ErrUnsupported }
func chmodFD(int, uint32) error                                { return ErrUnsupported }
func chownFD(int, int, int) error                              { return ErrUnsupported }
func closeFD(int) error                                        { return ErrUnsupported }
func mkdirAt(int, string) error                                { return ErrUnsupported }
func unlinkAt(int, string) error                               { return ErrUnsupported }
func rmdirAt(int, string) error                                { return ErrUnsupported }
func renameAt(int, string, int, string) error                  { return ErrUnsupported }
func chmodAt(int, string, uint32) error                        { return ErrUnsupported }
func chownAt(int, string, int, int) error                      { return ErrUnsupported }
func setTimeAt(int, string, int64) error                       { return ErrUnsupported }
func hasCapability(int) bool                                   { return false }
func dropCapability(int) error                                 { return ErrUnsupported }
func newFile(int, string) *os.File                             { return nil }
