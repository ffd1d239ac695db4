// The style sheet of pages: light and dark, two columns where there is room, and on paper.
#pragma once

namespace tandem::chart {

inline constexpr const char* kPageStyle = R"css(
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2330; --soft: #647084; --line: #e3e7ed; --good: #1f8a5b; --bad: #c2334d; --inside: #ffffff;
  --c0: #2f6fd6; --c1: #e08a1e; --c2: #1f9d78; --c3: #8257d8; --c4: #d6455d; --c5: #0f97b5;
  --c6: #94702f; --c7: #758396; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10141b; --card: #181e28; --ink: #e6eaf1; --soft: #93a0b4; --line: #2a3240; --good: #4cc38a; --bad: #f27a8d; --inside: #10141b;
  --c0: #6ea2f5; --c1: #f0ac55; --c2: #4fcfa7; --c3: #b094f2; --c4: #f27a8d; --c5: #55c4de;
  --c6: #cfae6c; --c7: #a7b3c3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 36px 24px 60px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0; letter-spacing: -0.02em; }
header p { margin: 6px 0 24px; color: var(--soft); }
h2 { font-size: 18px; margin: 36px 0 12px; }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(146px, 1fr)); }
.tile, figure, details { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 14px 16px; }
.tile h3 { margin: 0; font-size: 12.5px; font-weight: 600; color: var(--soft); }
.tile strong { display: block; font-size: 22px; line-height: 1.4; font-weight: 650; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile.good strong { color: var(--good); } .tile.bad strong { color: var(--bad); }
.tile small { color: var(--soft); font-size: 12px; line-height: 1.35; display: block; }
.charts { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); }
figure { margin: 0; padding: 16px 16px 8px; display: flex; flex-direction: column; }
figcaption { font-weight: 650; }
.note { margin: 0; color: var(--soft); font-size: 12.5px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-top: 6px; font-size: 12.5px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.legend i.thin { height: 4px; vertical-align: 3px; opacity: 0.75; }
svg { width: 100%; height: auto; margin-top: auto; padding-top: 8px; display: block; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.axis { fill: var(--soft); font-size: 11.5px; }
polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
polyline.faint { stroke-width: 1.2; opacity: 0.32; }
polyline.dashed { stroke-width: 1.8; stroke-dasharray: 6 5; opacity: 0.75; }
.hollow { fill: none; stroke-width: 1.5; stroke-dasharray: 5 3; }
.mark { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 3 4; }
.row { fill: var(--ink); font-size: 12px; }
.inside { fill: var(--inside); font-size: 11.5px; font-weight: 600; }
circle { stroke: var(--card); stroke-width: 1.5; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
.s6 { stroke: var(--c6); } .s7 { stroke: var(--c7); }
.b0, .d0 { fill: var(--c0); } .b1, .d1 { fill: var(--c1); } .b2, .d2 { fill: var(--c2); }
.b3, .d3 { fill: var(--c3); } .b4, .d4 { fill: var(--c4); } .b5, .d5 { fill: var(--c5); }
.b6, .d6 { fill: var(--c6); } .b7, .d7 { fill: var(--c7); }
.k0 { background: var(--c0); } .k1 { background: var(--c1); } .k2 { background: var(--c2); }
.k3 { background: var(--c3); } .k4 { background: var(--c4); } .k5 { background: var(--c5); }
.k6 { background: var(--c6); } .k7 { background: var(--c7); }
.bars { padding: 10px 0 12px; display: grid; gap: 8px; }
.bar { display: grid; grid-template-columns: 130px 1fr 80px; gap: 12px; align-items: center; font-size: 13px; }
.bar span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar div { background: var(--line); border-radius: 4px; height: 12px; }
.bar b { display: block; height: 100%; min-width: 2px; border-radius: 4px; }
.bar em { font-style: normal; text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; padding: 10px 0 8px; }
table { border-collapse: separate; border-spacing: 3px; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--soft); text-align: right; padding: 4px 8px; white-space: nowrap; }
td { text-align: right; padding: 4px 8px; border-radius: 4px; white-space: nowrap;
  background: color-mix(in srgb, var(--c1) var(--heat, 0%), transparent); }
td.best { outline: 2px solid var(--good); font-weight: 650; }
th:first-child { text-align: left; }
.texts { table-layout: auto; } .texts th { text-align: left; }
.texts td { text-align: left; vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere; border-top: 1px solid var(--line); border-radius: 0; }
.texts td.right { color: var(--good); font-weight: 650; } .texts td.wrong { color: var(--bad); }
.full { grid-column: 1 / -1; }
details { padding: 12px 16px; } summary { cursor: pointer; } pre { overflow-x: auto; font-size: 12.5px; line-height: 1.45; }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  @page { margin: 12mm; }
  body { background: none; font-size: 12px; } main { padding: 0; max-width: none; }
  h2 { margin-top: 20px; break-after: avoid; } figure, .tile, details { break-inside: avoid; }
  .charts { grid-template-columns: 1fr 1fr; } .tiles { grid-template-columns: repeat(4, 1fr); } }
)css";

}  // namespace tandem::chart
