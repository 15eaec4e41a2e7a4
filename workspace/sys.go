package workspace

import "io/fs"

// how is what a descriptor is opened for.
type how int

const (
	lookUp     how = iota // a directory, to reach what is in it
	list                  // a directory, to read its names
	read                  // a regular file or a directory, to read it
	readListed            // the same, where a directory has said that there is one
	write                 // a regular file that is there, to write to it
	createNew             // a regular file that must not be there, mode 0600
)

// dirent is a name in a directory with the type the directory claims for it, or
// typeUnknown. The type is a hint: the guest may have replaced the file since.
type dirent struct {
	name string
	typ  fs.FileMode
	st   *stat // if the walk has asked for it
}

const typeUnknown = fs.ModeIrregular
