"""The chart of whole models: for each a bar of our time by ONNX Runtime's on each number of cores, on a logarithmic scale."""

import math
from xml.sax.saxutils import escape

from compare import ORT, OURS, RTEN, TRACT

LEFT, WIDTH, ROW, TOP = 170, 560, 15, 44
LIMITS = (0.25, 8)
TICKS = (0.25, 0.5, 0.95, 1, 2, 4, 8)
FILLS = ("#4878a8", "#9cc0dc", "#c8dcea", "#e0e8ee")
PEERS = {RTEN: ("#c05020", "rten"), TRACT: ("#308040", "tract")}


def drawn(wholes):
    """The chart as SVG: bars are medians, lines through them their spread over rounds, dots the other peers by ONNX Runtime."""
    threads = list(dict.fromkeys(whole["cores"] for whole in wholes))
    parts, y, last = [], TOP, None
    for whole in wholes:
        if whole["model"] != last:
            y, last = y + 7, whole["model"]
            parts.append(text(LEFT - 8, y + 11, whole["model"], "end"))
        parts += bar(whole, y, FILLS[min(threads.index(whole["cores"]), len(FILLS) - 1)])
        y += ROW
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{y + 30}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>', *legend(threads), *grid(y), *parts, "</svg>", ""])


def bar(whole, y, fill):
    """Our ratio with its spread, and where the other peers are."""
    parts, one = [], at(1)
    ratio = whole["ratios"].get(ORT, {}).get("further")
    if ratio:
        end, middle = at(ratio["median"]), y + ROW / 2
        parts.append(f'<rect x="{min(one, end):.1f}" y="{y + 2}" width="{abs(end - one):.1f}" height="{ROW - 4}" fill="{fill}"/>')
        parts.append(line(at(ratio["least"]), middle, at(ratio["greatest"]), middle, "#222"))
        parts.append(text(LEFT + WIDTH + 4, y + 11, f"{ratio['median']:.2f}"))
    for peer, (colour, _) in PEERS.items():
        times = [whole["programs"].get(program, {}).get("further") for program in (peer, ORT)]
        if all(times):
            there = at(times[0]["median"] / times[1]["median"])
            parts.append(f'<circle cx="{there:.1f}" cy="{y + ROW / 2}" r="3" fill="{colour}"/>')
    return parts


def grid(bottom):
    for tick in TICKS:
        colour = {1: "#222", 0.95: "#c02020"}.get(tick, "#ccc")
        yield line(at(tick), TOP, at(tick), bottom, colour)
        if tick != 0.95:
            yield text(at(tick), bottom + 14, f"{tick:g}", "middle")


def legend(threads):
    x = LEFT
    yield text(x, 16, f"{OURS} ÷ {ORT}, time of a run: left of the red line (0.95) is ahead")
    for threads, fill in zip(threads, FILLS):
        yield f'<rect x="{x}" y="24" width="10" height="10" fill="{fill}"/>'
        yield text(x + 14, 33, f"{threads} cores" if threads > 1 else "1 core")
        x += 80
    for colour, name in PEERS.values():
        yield f'<circle cx="{x + 5}" cy="29" r="3" fill="{colour}"/>' + text(x + 14, 33, f"{name} ÷ {ORT}")
        x += 150


def at(ratio):
    """Where a ratio is; beyond the limits it is at the edge."""
    low, high = map(math.log, LIMITS)
    return LEFT + WIDTH * (min(max(math.log(ratio), low), high) - low) / (high - low)


def line(x, y, to_x, to_y, colour):
    return f'<line x1="{x:.1f}" y1="{y}" x2="{to_x:.1f}" y2="{to_y}" stroke="{colour}"/>'


def text(x, y, what, anchor="start"):
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(what)}</text>'
