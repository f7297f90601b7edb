// Package images holds the recipes of the images that agentbox can make by
// itself. A recipe says what is in an image; where its packages come from is
// the host's business.
//
// A recipe is a text file NAME.recipe of fields "Name: value". Lines that begin
// with a blank, and empty lines among them, continue a value; a "#" in the first
// column begins a comment. The fields:
//
//	Description  one line about the image
//	Suite        the Debian release
//	Components   of the archive, default "main"
//	Packages     names, separated by blanks and line ends
//	Env          the environment of commands, one NAME=value per line
//	Workdir      the directory that commands start in, default /workspace
//	Setup        a shell script, run in the image as root at the end
//
// base.sh is what every image gets: the user, /workspace and a clean end.
package images

import "embed"

// FS holds the recipes and base.sh.
//
//go:embed *.recipe base.sh
var FS embed.FS
