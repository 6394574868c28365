"""The style of the page.

Colour alone says nothing: the colours of the states differ in brightness, too, and most states have a pattern.
"""

STYLE = """
:root{color-scheme:light dark;--paper:#fbfaf6;--card:#fffefb;--ink:#1f1e1b;--soft:#5f5c55;--faint:#706c63;
  --rule:#dcd8cc;--bad:#9c2a1c;--good:#20694a;--busy:#1d5a8a;--warn:#8a5a00;--training:#2b6a9e;
  --serving:#9fc3de;--servingink:#6d9fc4;--starting:#d9b650;--staging:#f0e3b4;--stagingink:#cbb56a;
  --waiting:#eceae3;--waitingink:#a9a498;--finished:#a8cdb6;--restarting:#f6d2a8;--restartingink:#d9822b;
  --lost:#fff;--lostink:#9c2a1c;--on:#fff;--l0:#1d5a8a;--l1:#c8641b;--l2:#2d8a63;--l3:#8d4f96;
  --l4:#8a6d00;--l5:#3a8fba;--l6:#a3344f;--l7:#5f5c55}
@media (prefers-color-scheme:dark){
:root{--paper:#191917;--card:#20201d;--ink:#eceae2;--soft:#b3afa4;--faint:#8d897e;--rule:#3a3934;--bad:#f0937f;
  --good:#7cc8a1;--busy:#8cc0ea;--warn:#e2b65c;--training:#4b8fc6;--serving:#2f5674;
  --servingink:#47779b;--starting:#a5852c;--staging:#4a4229;--stagingink:#857538;--waiting:#2d2c29;
  --waitingink:#66635b;--finished:#3f6b52;--restarting:#5a3d1c;--restartingink:#d08a41;--lost:#2a1512;
  --lostink:#ef7f68;--on:#0d1a24;--l0:#8cc0ea;--l1:#f0a266;--l2:#76c9a3;--l3:#cf9ad6;--l4:#d8bc55;
  --l5:#5fb0da;--l6:#ee8aa2;--l7:#b3afa4}
}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
  "Helvetica Neue","Noto Sans","Liberation Sans",Arial,sans-serif;font-variant-numeric:tabular-nums}
main,header,footer{max-width:1180px;margin:0 auto;padding:0 28px}
header{display:flex;gap:8px 20px;flex-wrap:wrap;align-items:baseline;padding-top:18px;padding-bottom:8px;
  color:var(--soft);font-size:13px}
header b{color:var(--ink);font-size:15px}
header .when{margin-left:auto}
h1{font:600 25px/1.32 Charter,"Bitstream Charter","Iowan Old Style","Sitka Text",Cambria,Georgia,serif;
  margin:6px 0 0;max-width:70ch;overflow-wrap:anywhere;text-wrap:balance}
h1 code{font-size:.84em;font-weight:500}
h2{font-size:16px;font-weight:650;margin:40px 0 2px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:13px;font-weight:650;margin:0 0 6px;color:var(--soft)}
h3.apart{margin-top:26px}
p{margin:4px 0;max-width:78ch}
p.note,figcaption{color:var(--soft);font-size:13px;margin:0 0 12px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace}
code{font-size:.9em;background:color-mix(in srgb,var(--ink) 6%,transparent);padding:0 .25em;border-radius:3px;
  overflow-wrap:anywhere}
.verdict{border-left:5px solid var(--soft);padding:2px 0 4px 18px;margin:6px 0 18px}
.verdict.failed,.verdict.silent{border-color:var(--bad)}
.verdict.complete{border-color:var(--good)}
.verdict.running{border-color:var(--busy)}
.chip{display:inline-block;font-size:12px;font-weight:700;letter-spacing:.07em;text-transform:uppercase;
  color:var(--soft)}
.failed .chip,.silent .chip{color:var(--bad)}
.complete .chip{color:var(--good)}
.running .chip{color:var(--busy)}
p.latest{max-width:none;margin:-6px 0 12px}
.why{display:grid;grid-template-columns:minmax(0,5fr) minmax(0,3fr);gap:12px 28px;margin:0 0 20px}
.why.single{grid-template-columns:minmax(0,1fr)}
pre{margin:0;padding:10px 12px;background:var(--card);border:1px solid var(--rule);border-radius:4px;font-size:12px;
  line-height:1.45;white-space:pre-wrap;overflow-wrap:anywhere}
ul{margin:0;padding-left:18px}
li{margin:0 0 6px}
details{margin-top:8px}
summary{cursor:pointer;color:var(--soft);font-size:13px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:0;border:1px solid var(--rule);
  border-radius:4px;background:var(--card);margin:0 0 10px;overflow:hidden}
.figures div{padding:10px 14px 11px;box-shadow:-1px -1px 0 var(--rule)}
.figures dt{font-size:12.5px;color:var(--soft)}
.figures dd{margin:0;font-size:22px;font-weight:600;line-height:1.3;letter-spacing:-.01em}
.figures dd+dd{font-size:12.5px;font-weight:400;color:var(--soft);letter-spacing:0;line-height:1.35}
.findings{margin:0 0 14px;border-left:3px solid var(--warn);padding-left:14px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 10px;padding:0;list-style:none;font-size:12.5px;
  color:var(--soft)}
.legend li{margin:0;display:flex;align-items:center;gap:6px}
.legend svg{width:18px;height:12px;flex:none;overflow:visible}
.time{position:relative;display:grid;grid-template-columns:minmax(64px,max-content) minmax(0,1fr);column-gap:12px;
  row-gap:3px;align-items:center}
.time>.who{grid-column:1;font-size:13px;line-height:1.2;max-width:190px;overflow:hidden}
.time>.who small{display:block;color:var(--faint);font-size:11px;white-space:nowrap;overflow:hidden;
  text-overflow:ellipsis}
.time>.who.compact{white-space:nowrap;text-overflow:ellipsis}
.time>.who.compact small{display:inline;margin-left:6px}
.time>.who.head{color:var(--faint);font-size:11.5px}
.time>svg{grid-column:2;position:relative}
.time>svg.grid{position:absolute;inset:0;z-index:0;height:100%;pointer-events:none}
.time .gap{grid-column:1/-1;height:10px}
.time .top{align-self:start;padding-top:2px}
svg{display:block;width:100%;overflow:visible}
svg svg{overflow:hidden}
svg svg.mark,svg svg.tick,svg svg.bad{overflow:visible}
text{font-size:12px;fill:var(--ink)}
text.small{font-size:11px;fill:var(--soft)}
text.faint{fill:var(--faint)}
text.halo{paint-order:stroke;stroke:var(--paper);stroke-width:3px}
text.in{font-size:11.5px}
.t-training{fill:var(--on)}
.t-waiting,.t-staging,.t-serving,.t-restarting,.t-ending,.t-lost{paint-order:stroke;stroke:var(--paper);
  stroke-width:3.5px}
.lane>rect{shape-rendering:crispEdges}
.s-training{fill:var(--training)}
.s-starting{fill:var(--starting)}
.s-finished{fill:var(--finished)}
.s-waiting{fill:url(#p-waiting)}
.s-staging{fill:url(#p-staging)}
.s-serving{fill:url(#p-serving)}
.s-restarting,.s-ending{fill:url(#p-restarting)}
.s-lost{fill:url(#p-lost);stroke:var(--lostink);stroke-width:1}
.b-waiting{fill:var(--waiting)}
.i-waiting{fill:var(--waitingink)}
.b-staging{fill:var(--staging)}
.i-staging{fill:var(--stagingink)}
.b-serving{fill:var(--serving)}
.i-serving{fill:var(--servingink)}
.b-restarting{fill:var(--restarting)}
.i-restarting{fill:var(--restartingink)}
.b-lost{fill:var(--lost)}
.i-lost{stroke:var(--lostink);stroke-width:.9;fill:none}
.defs{position:absolute}
.mark circle{fill:var(--paper);stroke:var(--bad);stroke-width:1.8}
.mark path{stroke:var(--bad);stroke-width:2;fill:none}
.band{fill:var(--faint)}
.band.failed{fill:var(--bad)}
.tick path{stroke:var(--good);stroke-width:2;fill:none}
.tick.lost path{stroke:var(--bad);stroke-width:1.5}
.tick.open path{stroke:var(--busy)}
.bad path{stroke:var(--bad);stroke-width:2;fill:none}
.tickline{stroke:var(--rule)}
.endline{stroke:var(--bad);stroke-width:1;stroke-dasharray:2 3;opacity:.55}
.value{stroke:var(--rule);stroke-dasharray:1 3}
.chart{border-bottom:1px solid var(--rule)}
.line{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}
.l0{stroke:var(--l0)}
.l1{stroke:var(--l1);stroke-dasharray:7 2}
.l2{stroke:var(--l2);stroke-dasharray:2 2.5}
.l3{stroke:var(--l3);stroke-dasharray:9 3 2 3}
.l4{stroke:var(--l4)}
.l5{stroke:var(--l5);stroke-dasharray:7 2}
.l6{stroke:var(--l6);stroke-dasharray:2 2.5}
.l7{stroke:var(--l7);stroke-dasharray:9 3 2 3}
.range{fill:var(--l0);opacity:.22}
.k0{fill:var(--finished)}
.k1{fill:url(#p-lost)}
.k2{fill:url(#p-restarting)}
.k3{fill:url(#p-waiting)}
.k4{fill:var(--training)}
.k5{fill:url(#p-staging)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px}
table.full{width:100%}
th{text-align:left;font-weight:600;font-size:12.5px;color:var(--soft);border-bottom:1px solid var(--rule);
  padding:4px 14px 4px 0;vertical-align:bottom}
td{padding:5px 14px 5px 0;border-bottom:1px solid color-mix(in srgb,var(--rule) 60%,transparent);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
td.w{min-width:15rem;overflow-wrap:anywhere}
td.t{white-space:nowrap}
td .bar{height:9px;background:var(--training);min-width:1px}
td.barcell{width:80%;vertical-align:middle}
.lostword{color:var(--bad)}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:0 40px}
footer{color:var(--soft);font-size:12.5px;padding-top:26px;padding-bottom:40px}
@media (max-width:640px){
main,header,footer{padding-left:14px;padding-right:14px}
header .when{margin-left:0}
h1{font-size:20px}
.verdict{padding-left:12px}
.why{grid-template-columns:minmax(0,1fr)}
.narrow{display:none}
.time{grid-template-columns:minmax(44px,max-content) minmax(0,1fr);column-gap:8px}
.time>.who{max-width:84px;font-size:12px;overflow-wrap:anywhere}
.figures{grid-template-columns:repeat(2,minmax(0,1fr))}
.figures dd{font-size:19px}
.columns{grid-template-columns:minmax(0,1fr)}
.time>.who.compact{white-space:normal}
.time>.who.compact small{display:none}
td.w{min-width:11rem}
}
@media print{
body{font-size:11px}
main,header,footer{max-width:none;padding:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
