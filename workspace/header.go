package workspace

import (
	"archive/tar"
	"maps"
	"strings"
)

// VetHeader is for programs that unpack with archive/tar themselves. It gives a
// copy of a header that is safe as far as a header alone can tell: a regular
// file or a directory, with a normalised name inside the archive ("." for its
// root), permission bits only, no owner and no extended attributes. For any other header it
// returns an error with the [Reason].
//
// It does not see the disk: whoever creates the file must not follow links that
// are there, as [Workspace.Create] and [Workspace.MkdirAll] do not.
func VetHeader(h *tar.Header) (*tar.Header, error) {
	path, err := clean(h.Name)
	if err == nil {
		if why := refusalOfType(h.Typeflag); why != "" {
			err = why
		}
	}
	if err != nil {
		return nil, wrap("vet", h.Name, err)
	}
	out := *h
	out.Name = path
	if path == "" {
		out.Name = "."
	}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
	default:
		out.Typeflag = tar.TypeReg
	}
	out.Linkname = ""
	out.Mode &= 0o777
	out.Uid, out.Gid, out.Uname, out.Gname = 0, 0, "", ""
	out.Xattrs = nil //lint:ignore SA1019 a program that still sets them must not get them through
	out.PAXRecords = maps.Clone(h.PAXRecords)
	maps.DeleteFunc(out.PAXRecords, func(key, _ string) bool { return isXattr(key) })
	return &out, nil
}

// refusalOfType is the reason not to restore a type of member, "" for regular
// files, however old or sparse, and directories.
func refusalOfType(t byte) Reason {
	switch t {
	case tar.TypeReg, 0, tar.TypeCont, tar.TypeGNUSparse, tar.TypeDir:
		return ""
	case tar.TypeSymlink:
		return Symlink
	case tar.TypeLink:
		return Hardlink
	}
	return Special
}

// isXattr recognises the records in which archivers keep extended attributes and ACLs.
func isXattr(key string) bool {
	for _, prefix := range []string{"SCHILY.xattr.", "LIBARCHIVE.xattr.", "SCHILY.acl.", "RHT.security."} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// carriesCapability reports whether a header brings file capabilities along.
func carriesCapability(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if isXattr(key) && strings.HasSuffix(key, ".security.capability") {
			return true
		}
	}
	return false
}
