"""Arguments: the paths of a build's parts, taken from the test's words. The rest of the words
remain."""
import argparse
import os
import sys

from .transports import TRANSPORTS

SECONDS = 30  # No single step takes longer on a busy machine.


def parse():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--build", required=True, type=os.path.abspath)
    parser.add_argument("--driver", help="that gpurund gets; the emulated device unless said")
    parser.add_argument("--client-dir", help="of the client library; the real one unless said")
    parser.add_argument("--client", help="gpu_client")
    parser.add_argument("--transport", choices=TRANSPORTS, help="that sessions must go over")
    parser.add_argument("--sanitizer", default="", help="of the build: address, thread, or none")
    args, rest = parser.parse_known_args()
    args.driver = args.driver or os.path.join(args.build, "lib/gpurun/emulated/libcuda.so.1")
    args.client_dir = args.client_dir or os.path.join(args.build, "lib/gpurun/client")
    args.client = args.client or os.path.join(args.build, "tests/gpu_client")
    sys.argv[1:] = rest
    return args


ARGS = parse()
DRIVERS = {"emulated": os.path.join(ARGS.build, "lib/gpurun/emulated/libcuda.so.1"),
           "null": os.path.join(ARGS.build, "tests/drivers/null/libcuda.so.1")}
HOME = os.path.join(ARGS.build, "home")
GPURUN = os.path.join(ARGS.build, "bin/gpurun")
GPURUND = os.path.join(ARGS.build, "bin/gpurund")
GPUCTL = os.path.join(ARGS.build, "bin/gpuctl")
