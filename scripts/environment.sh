# For the scripts beside it, which source it: messages, a fitting Python, virtual environments.

export PIP_DISABLE_PIP_VERSION_CHECK=1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

find_python() { # prints a Python that is new enough and can make environments
  local name found=
  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    found=$name
    "$name" -c 'import ensurepip, venv' 2>/dev/null || continue
    command -v "$name"
    return
  done
  if [ -n "$found" ]; then
    fail "$found has no module venv; on Debian and Ubuntu: apt install python3-venv"
  fi
  fail "no Python 3.11 or newer on the PATH; get one from python.org or your package manager"
}

logged() { # LOG COMMAND...: runs the command; on failure shows the end of its output and why
  local log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null && return
  tail -n 12 "$log" >&2
  if grep -qiE 'name resolution|connection(error| refused| reset| broken)|unreachable|timed out|proxyerror' "$log"; then
    fail "PyPI is out of reach: check the network, or set HTTPS_PROXY, and run this again"
  fi
  fail "'$(basename "$1") ${*:2:3} …' failed; the whole output is in $log"
}

environment() { # FOLDER EXTRAS: makes a virtual environment with this package, or keeps it; sets bin
  local folder=$1 extras=$2 python stamp
  stamp="$extras in $root with $(cksum <pyproject.toml)"
  bin=$folder/bin
  case $(uname -s) in MINGW* | MSYS* | CYGWIN*) bin=$folder/Scripts ;; esac
  if [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$stamp" ] && "$bin/python" -c '' 2>/dev/null; then
    return
  fi
  python=$(find_python)
  say "Making the environment ${folder#"$root/"} with $("$python" --version) …"
  mkdir -p "$folder"
  logged "$folder.log" "$python" -m venv --clear "$folder"
  say "Installing onnxgen[$extras] from PyPI (a minute or two, once) …"
  logged "$folder.log" "$bin/python" -m pip install -e ".[$extras]"
  printf '%s\n' "$stamp" >"$folder/.stamp"
}
