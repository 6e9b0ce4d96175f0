// Package archive writes tar archives whose bytes follow from their files
// alone: nothing of the machine, the user or the time of writing is in them.
package archive

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"strings"
	"time"
)

// File is a file of an archive, or a folder. It belongs to root.
type File struct {
	// Name is its path in the archive, with slashes. That of a folder ends with one.
	Name string
	// Mode are its permissions.
	Mode int64
	// Data is what it holds.
	Data []byte
}

// Write writes a tar archive of the files in their order, all last changed at
// t, which counts in whole seconds. USTAR is the form of tar that has no room
// for more.
func Write(w io.Writer, t time.Time, files []File) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)),
			ModTime: t, Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(f.Data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// WriteGzip is Write, compressed.
func WriteGzip(w io.Writer, t time.Time, files []File) error {
	z, err := gzip.NewWriterLevel(w, gzip.DefaultCompression) // with no name and no time in its header
	if err != nil {
		return err
	}
	if err := Write(z, t, files); err != nil {
		return err
	}
	return z.Close()
}
